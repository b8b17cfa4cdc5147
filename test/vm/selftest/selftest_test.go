// Package selftest is what the test machines are tried with: it runs on the host and, compiled, in each guest.
//
// In: a kernel. Out: whether network namespaces, veth, clsact and BPF work on it. Package vm's tests call it.
package selftest

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func TestKernelHasBTF(t *testing.T) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var skb *btf.Struct
	if err := spec.TypeByName("sk_buff", &skb); err != nil {
		t.Fatal(err)
	}
}

// A program on the clsact hook of one end of a veth pair counts the datagrams sent from the other end.
func TestClsactProgramCounts(t *testing.T) {
	const datagrams = 10
	sender, receiver := newNamespace(t), newNamespace(t)
	from, to := netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("192.0.2.2/24")
	pair(t, sender, receiver, from, to)

	var conn net.PacketConn
	var counts *ebpf.Map
	receiver.do(t, func() {
		conn = must(net.ListenPacket("udp4", netip.AddrPortFrom(to.Addr(), 0).String()))(t)
		counts = attachCounter(t, "eth0")
	})
	defer conn.Close()

	sender.do(t, func() {
		out := must(net.Dial("udp4", conn.LocalAddr().String()))(t)
		defer out.Close()
		for i := range datagrams {
			must(fmt.Fprint(out, i))(t)
		}
	})
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for range datagrams {
		if _, _, err := conn.ReadFrom(make([]byte, 16)); err != nil {
			t.Fatalf("receive a datagram: %v", err)
		}
	}
	var got uint64
	if err := counts.Lookup(uint32(0), &got); err != nil {
		t.Fatal(err)
	}
	if got != datagrams {
		t.Errorf("the program counted %d UDP datagrams, want %d", got, datagrams)
	}
}

// attachCounter makes a program that counts IPv4 UDP packets into its map and puts it on the ingress of link.
func attachCounter(t *testing.T, link string) *ebpf.Map {
	t.Helper()
	counts := must(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}))(t)
	t.Cleanup(func() { counts.Close() })

	const protocolAt, udp, actOK, keyAt = 14 + 9, 17, 0, -4
	prog := must(ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "selftest", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadAbs(protocolAt, asm.Byte),
			asm.JNE.Imm(asm.R0, udp, "out"),
			asm.StoreImm(asm.RFP, keyAt, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, keyAt),
			asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, actOK).WithSymbol("out"),
			asm.Return(),
		},
	}))(t)
	t.Cleanup(func() { prog.Close() })

	index := must(netlink.LinkByName(link))(t).Attrs().Index
	qdisc := netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)}
	if err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: qdisc}); err != nil {
		t.Fatalf("add clsact to %s: %v", link, err)
	}
	filter := netlink.FilterAttrs{
		LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1,
		Protocol: unix.ETH_P_IP, // in an ARP packet the same byte is any part of an address
	}
	if err := netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: filter, Fd: prog.FD(), Name: "selftest", DirectAction: true,
	}); err != nil {
		t.Fatalf("put a program on the ingress of %s: %v", link, err)
	}
	return counts
}

// namespace is a network namespace without a name: it vanishes with its last handle.
type namespace struct{ handle netns.NsHandle }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := must(netns.Get())(t)
	defer home.Close()
	ns := namespace{must(netns.New())(t)}
	t.Cleanup(func() { ns.handle.Close() })
	if err := netns.Set(home); err != nil {
		t.Fatalf("return to the first namespace: %v", err)
	}
	return ns
}

// do calls f on a thread that is in the namespace.
func (ns namespace) do(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := must(netns.Get())(t)
	defer home.Close()
	if err := netns.Set(ns.handle); err != nil {
		t.Fatalf("enter a namespace: %v", err)
	}
	defer func() {
		if err := netns.Set(home); err != nil {
			t.Errorf("leave a namespace: %v", err)
		}
	}()
	f()
}

// pair joins two namespaces by a veth pair, both ends of which are eth0.
func pair(t *testing.T, a, b namespace, addrA, addrB netip.Prefix) {
	t.Helper()
	a.do(t, func() {
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "eth0"},
			PeerName:  "eth0", PeerNamespace: netlink.NsFd(b.handle),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Fatalf("make a veth pair: %v", err)
		}
	})
	for _, end := range []struct {
		ns   namespace
		addr netip.Prefix
	}{{a, addrA}, {b, addrB}} {
		end.ns.do(t, func() {
			link := must(netlink.LinkByName("eth0"))(t)
			addr := must(netlink.ParseAddr(end.addr.String()))(t)
			if err := netlink.AddrAdd(link, addr); err != nil {
				t.Fatalf("add %s to eth0: %v", end.addr, err)
			}
			if err := netlink.LinkSetUp(link); err != nil {
				t.Fatalf("set eth0 up: %v", err)
			}
		})
	}
}

// must ends the test on an error, else returns v.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

//go:build linux

package ioam_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// The kernel's own transit node and Node do the same with every packet.
func TestKernelAgrees(t *testing.T) {
	result := make(chan error)
	go func() {
		// Never unlocked: the thread and its network namespace end together.
		runtime.LockOSThread()
		result <- compareWithKernel(t)
	}()
	err := <-result
	if errors.Is(err, unix.EPERM) {
		t.Skipf("needs CAP_SYS_ADMIN for a network namespace of its own: %v", err)
	}
	if errors.Is(err, errNoIOAM) || errors.Is(err, exec.ErrNotFound) {
		t.Skipf("needs IOAM in the kernel, and ip: %v", err)
	}
	if err != nil {
		t.Error(err)
	}
}

var errNoIOAM = errors.New("the kernel has no IOAM")

func compareWithKernel(t *testing.T) error {
	if _, err := os.Stat("/proc/sys/net/ipv6/ioam6_id"); err != nil {
		return errNoIOAM
	}
	k, err := newKernelNode()
	if err != nil {
		return err
	}
	defer k.close()
	if err := k.compareTypes(t); err != nil {
		return err
	}
	return k.compareVerdicts(t)
}

// compareTypes sends a trace of each type, and of each combination of undefined bits,
// through the node three times. After two it is full, except where a snapshot needs
// less than was planned for.
func (k *kernelNode) compareTypes(t *testing.T) error {
	var pkts [][]byte
	types := traceTypes()
	for undefined := range ioam.TraceType(1 << 10) {
		types = append(types, ioam.HopLimitNodeID|undefined<<2)
	}
	for i, tt := range types {
		for ns := uint16(1); ns == 1 || ns == 2 && tt.Has(ioam.OpaqueStateSnapshot); ns++ {
			space := 2*tt.NodeSize(len(athos.Namespaces[2].Schema.Data)) + 4*(i%3)
			trace, err := ioam.NewTrace(ns, tt, space)
			if err != nil {
				return err
			}
			pkt, err := ioam.Insert(udp().Bytes(), trace)
			if err != nil {
				return err
			}
			pkts = append(pkts, pkt)
		}
	}
	seen := map[ioam.Verdict]int{}
	for range 3 {
		out, err := k.forward(pkts, len(pkts))
		if err != nil {
			return err
		}
		for i, pkt := range pkts {
			want, v := k.model(pkt, out[i], ioam.NewPassage(0))
			seen[v]++
			if !bytes.Equal(out[i], want) {
				t.Errorf("%v\n  sent %x\nkernel %x\n model %x", v, pkt, out[i], want)
				return nil // one is enough
			}
		}
		pkts = out
	}
	if seen[ioam.Filled] < 2*len(pkts) || seen[ioam.OverflowSet] < len(pkts)/2 {
		t.Errorf("verdicts: %v", seen)
	}
	return nil
}

// compareVerdicts sends the options of TestUpdate.
func (k *kernelNode) compareVerdicts(t *testing.T) error {
	end := udp().Bytes()
	for _, c := range updates {
		option := unhex(t, c.hex)
		if kind, _ := (ioam.Option{Raw: option}).Kind(); kind == ioam.IncrementalTrace {
			continue // which the kernel does not know
		}
		enabled := "1"
		if c.disabled {
			enabled = "0"
		}
		if err := sysctl("net/ipv6/conf/in/ioam6_enabled", enabled); err != nil {
			return err
		}
		pkt := raw(c.offset, option...)
		want := 2
		if c.verdict.Drops() {
			want = 1
		}
		out, err := k.forward([][]byte{pkt, end}, want)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if c.verdict.Drops() {
			// Kernels before the fix of CVE-2026-43186 trust NodeLen.
			if out[0] != nil && c.verdict != ioam.NodeLenWrong {
				t.Errorf("%s: not dropped: %x", c.name, out[0])
			}
			continue
		}
		passage := ioam.NewPassage(0)
		passage.Disabled = c.disabled
		if want, v := k.model(pkt, out[0], passage); v != c.verdict || !bytes.Equal(out[0], want) {
			t.Errorf("%s: %v, want %v\n  sent %x\nkernel %x\n model %x", c.name, v, c.verdict, pkt, out[0], want)
		}
	}
	return nil
}

// model is what pkt becomes by athos, with the times that the kernel wrote.
func (k *kernelNode) model(pkt, kernel []byte, p ioam.Passage) ([]byte, ioam.Verdict) {
	p.QueueDepth = 0
	p.Ingress, p.Egress, p.IngressWide, p.EgressWide = inID, outID, inWide, outWide
	if found, _ := ioam.Find(kernel); len(found) > 0 {
		p.Received = k.timeIn(found[0].Raw)
	}
	out, verdicts, err := athos.Transit(pkt, p)
	if err != nil || out == nil {
		return nil, ioam.NotTrace
	}
	out[7]-- // hop limit
	return out, append(verdicts, ioam.NotTrace)[0]
}

// timeIn is the time in the newest data of a trace. One that is not of this test is
// not returned, so that the comparison fails.
func (k *kernelNode) timeIn(option []byte) time.Time {
	now := time.Now()
	body, _ := ioam.DecodeOption(option)
	trace, ok := body.(*ioam.Trace)
	if !ok {
		return now
	}
	hops, _ := trace.Hops()
	if len(hops) == 0 {
		return now
	}
	h := hops[len(hops)-1]
	if !trace.Type.Has(ioam.TimestampSeconds) {
		h.Seconds = uint32(now.Unix())
	}
	at, _ := ioam.POSIX.Join(h.Seconds, h.Fraction, now)
	if d := now.Sub(at); trace.Type.Has(ioam.TimestampSeconds) && (d < -time.Second || d > time.Minute) {
		return time.Time{}
	}
	return at
}

// Ids of the interfaces through which packets enter and leave the node.
const (
	inID, outID     = 11, 12
	inWide, outWide = 1111, 1212
)

// kernelNode is a router in a network namespace of its own: what is sent on one packet
// socket is routed, and received from the other.
type kernelNode struct {
	send, receive int
	to            unix.SockaddrLinklayer
	header        []byte // Ethernet
	id            uint32 // of the next packet, at the end of its payload
}

func (k *kernelNode) close() {
	for _, fd := range []int{k.send, k.receive} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func newKernelNode() (*kernelNode, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("unshare network namespace: %w", err)
	}
	links := map[string]netlink.Link{}
	for name, peer := range map[string]string{"source": "in", "out": "sink"} {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}); err != nil {
			return nil, fmt.Errorf("add veth: %w", err)
		}
		for _, n := range []string{name, peer} {
			l, err := netlink.LinkByName(n)
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				return nil, fmt.Errorf("set %s up: %w", n, err)
			}
			links[n] = l
		}
	}
	if err := configureKernelNode(); err != nil {
		return nil, err
	}
	out := links["out"].Attrs()
	dst := net.ParseIP("2001:db8::2")
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: out.Index, Dst: &net.IPNet{IP: dst, Mask: net.CIDRMask(128, 128)}}); err != nil {
		return nil, fmt.Errorf("add route: %w", err)
	}
	// An address that nobody has: the sink sees the packets, and routes none.
	nobody := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	if err := netlink.NeighAdd(&netlink.Neigh{LinkIndex: out.Index, IP: dst, HardwareAddr: nobody, State: netlink.NUD_PERMANENT}); err != nil {
		return nil, fmt.Errorf("add neighbour: %w", err)
	}
	k := &kernelNode{receive: -1, to: unix.SockaddrLinklayer{Ifindex: links["source"].Attrs().Index}}
	k.header = append(append(slices.Clone(links["in"].Attrs().HardwareAddr), 2, 0, 0, 0, 0, 8), 0x86, 0xDD)
	var err error
	if k.send, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if k.receive, err = listenOn(links["sink"].Attrs().Index); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// listenOn is a packet socket that sees IPv6 packets of an interface.
func listenOn(ifindex int) (int, error) {
	const typeIPv6 = 0xDD86 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, typeIPv6)
	if err != nil {
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	deadline := unix.NsecToTimeval(int64(10 * time.Second))
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifindex, Protocol: typeIPv6}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &deadline),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, backlog<<12),
	)
	return fd, err
}

// configureKernelNode makes the namespace of this thread a node as athos is configured.
func configureKernelNode() error {
	for name, value := range map[string]string{
		"net/ipv6/conf/all/forwarding": "1",
		"net/ipv6/ioam6_id":            fmt.Sprint(athos.ID), "net/ipv6/ioam6_id_wide": fmt.Sprint(athos.IDWide),
		"net/ipv6/conf/in/ioam6_id": fmt.Sprint(inID), "net/ipv6/conf/in/ioam6_id_wide": fmt.Sprint(inWide),
		"net/ipv6/conf/out/ioam6_id": fmt.Sprint(outID), "net/ipv6/conf/out/ioam6_id_wide": fmt.Sprint(outWide),
		"net/ipv6/conf/in/ioam6_enabled": "1",
	} {
		if err := sysctl(name, value); err != nil {
			return err
		}
	}
	for _, args := range []string{
		"namespace add 0", // which the kernel does not know by itself
		"namespace add 1 data 0xD1 wide 0xD2",
		"namespace add 2 data 0xD1 wide 0xD2",
		"schema add 112 " + string(athos.Namespaces[2].Schema.Data),
		"namespace set 2 schema 112",
	} {
		if out, err := exec.Command("ip", append([]string{"ioam"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip ioam %s: %w: %s", args, err, out)
		}
	}
	return nil
}

func sysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0)
}

// backlog is how many packets wait for the node: half of net.core.netdev_max_backlog,
// which all namespaces share.
const backlog = 500

// forward sends packets through the node, in batches that its queue holds, and returns
// those that come out at the places of those sent. n is how many are expected.
func (k *kernelNode) forward(pkts [][]byte, n int) ([][]byte, error) {
	out := make([][]byte, 0, len(pkts))
	for batch := range slices.Chunk(pkts, backlog) {
		first := k.id
		for _, pkt := range batch {
			frame := append(slices.Clone(k.header), pkt...)
			binary.BigEndian.PutUint32(frame[len(frame)-4:], k.id)
			k.id++
			if err := unix.Sendto(k.send, frame, 0, &k.to); err != nil {
				return nil, fmt.Errorf("send: %w", err)
			}
		}
		answers := make([][]byte, len(batch))
		for range min(n-len(out), len(batch)) {
			i, pkt, err := k.next(first)
			if err != nil {
				return nil, err
			}
			copy(pkt[len(pkt)-4:], batch[i][len(batch[i])-4:])
			answers[i] = pkt
		}
		out = append(out, answers...)
	}
	return out, nil
}

// next receives a packet of the batch that begins with this id, and its place there.
func (k *kernelNode) next(first uint32) (int, []byte, error) {
	b := make([]byte, 512)
	for {
		n, _, err := unix.Recvfrom(k.receive, b, 0)
		if err != nil {
			return 0, nil, fmt.Errorf("receive: %w", err)
		}
		pkt := b[len(k.header):n]
		if c, err := ipv6.Walk(pkt); err != nil || c.Proto != 17 {
			continue // neighbor discovery
		}
		if id := binary.BigEndian.Uint32(pkt[len(pkt)-4:]); id >= first {
			return int(id - first), pkt, nil
		}
	}
}

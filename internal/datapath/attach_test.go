package datapath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// holderVariable makes the test binary a process that holds hooks on an
// interface, PROGRAM ID lines on stdout, until it is killed.
const holderVariable = "WAYMARK_TEST_HOLDS"

func TestMain(m *testing.M) {
	if spec := os.Getenv(holderVariable); spec != "" {
		if err := hold(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func hold(spec string) error {
	var ifindex uint32
	var clsact bool
	if _, err := fmt.Sscanf(spec, "%d %t", &ifindex, &clsact); err != nil {
		return err
	}
	d := New(Config{MaxEntries: 64, Clsact: clsact}, nil)
	if err := d.Load(); err != nil {
		return err
	}
	if _, err := d.Attach(Target{Iface: flow.NewIface(0, ifindex), Name: "held"}); err != nil {
		return err
	}
	programs, err := d.Programs()
	if err != nil {
		return err
	}
	for _, p := range programs {
		fmt.Println(p.ID)
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

// startHolder starts such a process in the namespace of v and returns the ids
// of its programs.
func startHolder(t *testing.T, v *silentVeth, clsact bool) (*exec.Cmd, []ebpf.ProgramID) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %t", holderVariable, v.to, clsact))
	cmd.Stderr = t.Output()
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var ids []ebpf.ProgramID
	for s := bufio.NewScanner(out); s.Scan(); {
		if s.Text() == "ready" {
			return cmd, ids
		}
		var id ebpf.ProgramID
		if _, err := fmt.Sscan(s.Text(), &id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	t.Fatal("the holder ended before it was ready")
	return nil, nil
}

func exists(id ebpf.ProgramID) bool {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	p.Close()
	return true
}

// filters are the names of the filters on v's receiving end.
func (v *silentVeth) filters(t *testing.T) (names []string) {
	t.Helper()
	err := v.do(func() error {
		link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: v.to}}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			list, err := netlink.FilterList(link, parent)
			if err != nil {
				return err
			}
			for _, f := range list {
				if b, ok := f.(*netlink.BpfFilter); ok {
					names = append(names, b.Name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func (v *silentVeth) qdiscs(t *testing.T) (kinds []string) {
	t.Helper()
	err := v.do(func() error {
		list, err := netlink.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: v.to}})
		for _, q := range list {
			kinds = append(kinds, q.Type())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

func (v *silentVeth) target() Target {
	return Target{Iface: flow.NewIface(0, uint32(v.to)), Name: "to", Do: v.do}
}

var udpFrame = packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1000, 2000).Payload(100).Bytes()

// countsOf sends n frames and expects d to count each, once.
func countsOf(t *testing.T, v *silentVeth, n int, probes ...*Datapath) {
	t.Helper()
	for range n {
		v.send(t, udpFrame)
	}
	for i, d := range probes {
		var got uint64
		await.True(t, fmt.Sprintf("probe %d counts %d packets", i, n), func() bool {
			if err := d.Drain(func(x *flow.Delta) { got += x.Packets }); err != nil {
				t.Fatal(err)
			}
			return got >= uint64(n)
		})
		if got != uint64(n) {
			t.Errorf("probe %d: %d packets, sent %d", i, got, n)
		}
	}
}

// TestTwoProbesOnOneInterface: each counts every packet, in both modes.
func TestTwoProbesOnOneInterface(t *testing.T) {
	for _, clsact := range []bool{false, true} {
		t.Run(fmt.Sprintf("clsact %t", clsact), func(t *testing.T) {
			v := newSilentVeth(t)
			first, second := load(t, Config{MaxEntries: 64, Clsact: clsact}), load(t, Config{MaxEntries: 64})
			for _, d := range []*Datapath{first, second} {
				if _, err := d.Attach(v.target()); err != nil {
					t.Fatal(err)
				}
			}
			countsOf(t, v, 10, first, second)
		})
	}
}

func TestAttachTwiceIsRefused(t *testing.T) {
	v := newSilentVeth(t)
	d := load(t, Config{MaxEntries: 64})
	if _, err := d.Attach(v.target()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Attach(v.target()); err == nil {
		t.Error("attached twice")
	}
	countsOf(t, v, 3, d)
}

// TestClsactLeavesNothing: our filters go, a foreign one and its qdisc stay.
func TestClsactLeavesNothing(t *testing.T) {
	v := newSilentVeth(t)
	before := v.qdiscs(t)
	d := load(t, Config{MaxEntries: 64, Clsact: true})
	if _, err := d.Attach(v.target()); err != nil {
		t.Fatal(err)
	}
	if got := v.filters(t); len(got) != 2 {
		t.Fatalf("filters %q, want one for each direction", got)
	}
	countsOf(t, v, 3, d)
	if err := d.Detach(v.target().Iface); err != nil {
		t.Fatal(err)
	}
	if got := v.qdiscs(t); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("qdiscs %q, before %q", got, before)
	}

	err := v.do(func() error {
		return netlink.QdiscAdd(&netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: v.to, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
			QdiscType:  "clsact",
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Attach(v.target()); err != nil {
		t.Fatal(err)
	}
	if err := d.Detach(v.target().Iface); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(v.qdiscs(t), " "); !strings.Contains(got, "clsact") {
		t.Errorf("the qdisc of somebody else is gone: %s", got)
	}
}

// TestKilledProbe: what a killed process held goes by itself with TCX; with
// clsact the next probe takes it away. Both count on.
func TestKilledProbe(t *testing.T) {
	for _, clsact := range []bool{false, true} {
		t.Run(fmt.Sprintf("clsact %t", clsact), func(t *testing.T) {
			v := newSilentVeth(t)
			holder, ids := startHolder(t, v, clsact)
			if len(ids) == 0 {
				t.Fatal("the holder has no programs")
			}
			if err := holder.Process.Signal(unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = holder.Wait() // it was killed
			if clsact && len(v.filters(t)) != 2 {
				t.Fatalf("filters of the killed process: %q, want 2", v.filters(t))
			}
			d := load(t, Config{MaxEntries: 64, Clsact: clsact})
			if _, err := d.Attach(v.target()); err != nil {
				t.Fatal(err)
			}
			countsOf(t, v, 5, d)
			for _, id := range ids {
				await.True(t, fmt.Sprintf("program %d of the killed process is gone", id), func() bool { return !exists(id) })
			}
			if clsact && len(v.filters(t)) != 2 {
				t.Errorf("filters %q, want ours only", v.filters(t))
			}
		})
	}
}

// TestLiveFiltersStay: a probe never removes the filters of one that runs.
func TestLiveFiltersStay(t *testing.T) {
	v := newSilentVeth(t)
	startHolder(t, v, true)
	d := load(t, Config{MaxEntries: 64, Clsact: true})
	if _, err := d.Attach(v.target()); err != nil {
		t.Fatal(err)
	}
	if got := v.filters(t); len(got) != 4 {
		t.Errorf("filters %q, want two of each probe", got)
	}
	countsOf(t, v, 5, d)
}

// TestInterfaceVanishes: detaching from what is gone is no error, and what was
// counted there is not lost.
func TestInterfaceVanishes(t *testing.T) {
	for _, clsact := range []bool{false, true} {
		t.Run(fmt.Sprintf("clsact %t", clsact), func(t *testing.T) {
			v := newSilentVeth(t)
			d := load(t, Config{MaxEntries: 64, Clsact: clsact})
			if _, err := d.Attach(v.target()); err != nil {
				t.Fatal(err)
			}
			v.send(t, udpFrame)
			err := v.do(func() error {
				return netlink.LinkDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "to", Index: v.to}})
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Detach(v.target().Iface); err != nil {
				t.Error(err)
			}
			var packets uint64
			if err := d.Drain(func(x *flow.Delta) { packets += x.Packets }); err != nil {
				t.Fatal(err)
			}
			if packets != 1 {
				t.Errorf("%d packets, want the one of before", packets)
			}
			if _, err := d.Attach(v.target()); !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				t.Errorf("attaching to a vanished interface: %v", err)
			}
		})
	}
}

// The programs of a namespace go with its last interface, and so do the totals
// of an interface that is forgotten, but not those of others.
func TestNamespacesComeAndGo(t *testing.T) {
	v := newSilentVeth(t)
	d := load(t, Config{MaxEntries: 1024})
	own := len(d.loaded)
	for netns := range uint32(3) {
		from, to := v.target(), v.target()
		from.Iface, to.Iface = flow.NewIface(netns+1, uint32(v.from)), flow.NewIface(netns+1, uint32(v.to))
		for _, target := range []Target{from, to} {
			if _, err := d.Attach(target); err != nil {
				t.Fatal(err)
			}
		}
		v.send(t, packet.Eth().ARP("192.0.2.1", "192.0.2.2").Bytes())
		if err := d.Detach(from.Iface); err != nil {
			t.Fatal(err)
		}
		if got := len(d.loaded); got != own+2 {
			t.Errorf("namespace %d: %d programs with one interface left, want %d", netns, got, own+2)
		}
		if err := d.Detach(to.Iface); err != nil {
			t.Fatal(err)
		}
		if got := len(d.loaded); got != own {
			t.Errorf("namespace %d: %d programs without an interface, want %d", netns, got, own)
		}
	}
	gone := flow.NewIface(2, uint32(v.from))
	if err := d.Forget(gone); err != nil {
		t.Fatal(err)
	}
	uncounted, err := d.Uncounted()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range uncounted {
		if u.Iface == gone {
			t.Errorf("forgotten: %+v", u)
		}
	}
	if len(uncounted) != 5 { // of both ends in each of three namespaces
		t.Errorf("%d totals, want 5: %+v", len(uncounted), uncounted)
	}
}

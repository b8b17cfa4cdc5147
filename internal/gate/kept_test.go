package gate

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hints"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// pinFolder is a directory in a bpf file system of its own.
func pinFolder(t *testing.T) string {
	t.Helper()
	at := t.TempDir()
	if err := unix.Mount("bpf", at, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(at, "pins")
}

// older is what an agent of another version has left on an interface: a program that drops everything, and maps.
type older struct {
	pins string
	id   link.ID // of the link at XDP
}

func newOlder(t *testing.T, v *datapathtest.Veth, as ebpf.AttachType) *older {
	t.Helper()
	o := &older{pins: pinFolder(t)}
	drops, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "waymark_xdp", Type: ebpf.XDP, AttachType: as, Flags: unix.BPF_F_XDP_HAS_FRAGS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpDrop), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer drops.Close()
	pinMap := func(path ...string) error {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			return err
		}
		return errors.Join(m.Pin(filepath.Join(path...)), m.Close())
	}
	if err := v.Do(func() error {
		var ns syscall.Stat_t
		l, err := link.AttachXDP(link.XDPOptions{Program: drops, Interface: v.To, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		defer l.Close()
		info, err := l.Info()
		if err != nil {
			return err
		}
		o.id = info.ID
		errs := []error{syscall.Stat("/proc/thread-self/ns/net", &ns), os.Mkdir(o.pins, 0o700)}
		name := func(hook string) string {
			return filepath.Join(o.pins, fmt.Sprintf("link-%s-%d-%d", hook, v.To, ns.Ino))
		}
		errs = append(errs, l.Pin(name("xdp")), pinMap(name("ingress"))) // the latter is no link
		// Of another layout by name, and only by what they are.
		for _, dir := range []string{"maps-0-1-2-3-4", keptPrefix + "1"} {
			errs = append(errs, os.Mkdir(filepath.Join(o.pins, dir), 0o700), pinMap(o.pins, dir, "counts"))
		}
		for pin := range keptMaps {
			if pin != "counts" {
				errs = append(errs, pinMap(o.pins, keptPrefix+"1", pin))
			}
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestKeptByAnotherVersion: what another version has left is recognized; its program is replaced on the same link, so that no
// packet meets none, or, where the kernel refuses that, on another, which is reported; nothing is read from its maps, which
// are named in the log, and removed.
func TestKeptByAnotherVersion(t *testing.T) {
	for as, same := range map[ebpf.AttachType]bool{ebpf.AttachXDP: true, ebpf.AttachNone: false} {
		takesOver(t, as, same)
	}
}

// newKeeper is a gate that keeps its programs.
func newKeeper(t *testing.T, v *datapathtest.Veth, pins string, log *slog.Logger) *guard {
	t.Helper()
	cfg := small()
	cfg.Mode, cfg.Pins, cfg.Keep = ModeNative, pins, true
	g := &guard{Gate: New(cfg, log), iface: flow.NewIface(0, uint32(v.To))}
	g.dp = datapath.New(datapath.Config{MaxEntries: 64, Stages: []*datapath.Stage{g.Stage(func(string) bool { return true })}}, log)
	if err := g.dp.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(g.dp.Close)
	return g
}

func (g *guard) attach(t *testing.T, v *datapathtest.Veth) {
	t.Helper()
	if _, err := g.dp.Attach(datapath.Target{Iface: g.iface, Name: "to", Do: v.Do}); err != nil {
		t.Fatal(err)
	}
}

func takesOver(t *testing.T, as ebpf.AttachType, same bool) {
	v := datapathtest.NewVeth(t)
	o := newOlder(t, v, as)
	var text await.Text
	log := slog.New(slog.NewTextHandler(&text, nil))
	g := newKeeper(t, v, o.pins, log)
	g.Inherit(&Amounts{}, nil)
	g.apply(t, "drop icmp\ncount udp")
	g.attach(t, v)
	if (o.link(t) == o.id) != same || g.dp.Modes(g.iface)[datapath.XDP] != datapath.ModeXDP {
		t.Errorf("the same link: %t, want %t; %v", !same, same, g.dp.Modes(g.iface))
	}
	const packets = 4
	for range packets {
		v.Send(t, packet.Eth().IPv4("192.0.2.1", "192.0.2.2").ICMP(8, 0, 1, 1).Bytes())
		v.Send(t, packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes())
	}
	await.True(t, "packets that meet the rules", func() bool {
		c, err := g.Counters()
		if err != nil {
			t.Fatal(err)
		}
		return c.Rules[0].Dropped == packets && c.Rules[1].Packets == packets && c.Passed.Packets == packets
	})
	replaced := 1 // what is no link
	if !same {
		replaced = 2
	}
	for what, want := range map[string]int{"is not taken over": 2, "another version wrote it": 2, "is replaced, not taken over": replaced} {
		if n := strings.Count(text.String(), what); n != want {
			t.Errorf("%q is in the log %d times, want %d:\n%s", what, n, want, text.String())
		}
	}
	g.dp.Synced()
	if err := errors.Join(g.dp.Drain(func(*flow.Delta) {}), g.Release()); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(o.pins + "/maps-*"); err != nil || len(left) != 1 {
		t.Errorf("maps are left: %v, %v", left, err)
	}
	g.dp.Leave()
	g.dp.Close()
	o.ends(t, v)
}

// TestStoppedAtOnce: what an agent keeps stays where the agent stops before its first drain.
func TestStoppedAtOnce(t *testing.T) {
	v := datapathtest.NewVeth(t)
	pins := pinFolder(t)
	g := newKeeper(t, v, pins, slog.New(slog.NewTextHandler(t.Output(), nil)))
	g.attach(t, v)
	g.dp.Synced()
	g.dp.Leave()
	if err := errors.Join(g.dp.Detach(g.iface), g.dp.Drain(func(*flow.Delta) {})); err != nil {
		t.Fatal(err)
	}
	g.dp.Close()
	(&older{pins: pins}).ends(t, v)
}

// link is that which is pinned at XDP.
func (o *older) link(t *testing.T) link.ID {
	t.Helper()
	l, err := link.LoadPinnedLink(o.linkPin(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// ends: what is left by the agent runs on, until it is removed.
func (o *older) ends(t *testing.T, v *datapathtest.Veth) {
	t.Helper()
	runs := func() (is bool) {
		t.Helper()
		if err := v.Do(func() error {
			d, err := hints.ExamineIndex(v.To)
			is = err == nil && d.Program != nil
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return is
	}
	if !runs() {
		t.Error("the rules ended with the agent")
	}
	if list, err := datapath.Pinned(o.pins); err != nil || len(list) == 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if _, err := datapath.RemovePins(o.pins); err != nil {
		t.Error(err)
	}
	await.True(t, "the end of the rules", func() bool { return !runs() })
}

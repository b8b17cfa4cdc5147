package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/hints"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// rungs are interfaces, each on another step of the ladder. It runs on old kernels, too (test/vm): without programs of the host.
var rungs = []struct{ iface, port, hook, why, doctor string }{
	{"native", "nativep", "xdp", "", "XDP: waymark_xdp (id "},
	{"behind", "portp", "xdp-generic", "", "XDP: waymark_xdp (id "},
	{"busy", "busyp", "tc", "XDP has another program (of_others, id ", "XDP: another program (of_others, id "},
}

// newLadder makes the interfaces: two ends of veth, of which one has a program at XDP, and a bridge.
func newLadder(t *testing.T) *lab.Host {
	t.Helper()
	h := labtest.NewHost(t)
	up := func(l netlink.Link) error { return netlink.LinkSetUp(l) }
	if err := h.Do(func() error {
		errs := []error{os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)}
		for _, name := range []string{"native", "port", "busy"} {
			pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}
			errs = append(errs, netlink.LinkAdd(pair), up(pair), up(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name + "p"}}))
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "behind"}}
		errs = append(errs, netlink.LinkAdd(bridge), up(bridge), netlink.LinkSetMaster(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port"}}, bridge))
		return errors.Join(errs...)
	}); err != nil {
		t.Fatal(err)
	}
	occupy(t, h, "busy")
	return h
}

// occupy has a program of someone else's at XDP of an interface, until leave is called.
func occupy(t *testing.T, h *lab.Host, iface string) (leave func()) {
	t.Helper()
	others, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "of_others", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()
	if err := h.Do(func() error {
		l, err := netlink.LinkByName(iface)
		if err != nil {
			return err
		}
		x, err := link.AttachXDP(link.XDPOptions{Program: others, Interface: l.Attrs().Index})
		leave = func() { _ = x.Close() }
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	return leave
}

// atXDP is the program at XDP of an interface; empty: there is none.
func atXDP(t *testing.T, h *lab.Host, iface string) (name string) {
	t.Helper()
	if err := h.Do(func() error {
		d, err := hints.Examine(iface)
		if err == nil && d.Program != nil {
			name = d.Program.Mode + " " + d.Program.Name
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestGateLadder: rules hold in the driver, behind it, and at tc where XDP has a program of someone else's; status and
// doctor report where and why; the same after a kill, with the next agent, and until pins are removed.
func TestGateLadder(t *testing.T) {
	t.Parallel()
	h := newLadder(t)
	pins := "/sys/fs/bpf/" + filepath.Base(t.TempDir()) + t.Name()
	// An emulated machine takes minutes for programs that no interface has, and for many scans.
	config := strings.Replace(quick, "50ms", "250ms", 1) + fmt.Sprintf("interfaces: [native, behind, busy]\ngate: {interfaces: [native, behind, busy], mode: generic, state: %s, pin: true, pin_dir: %s}\n",
		filepath.Join(t.TempDir(), "gate.json"), pins)
	run := setup{host: h, config: config, args: []string{"--keep-privileges"}}
	a := start(t, run)
	frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 9).Payload(30).Bytes()
	copy(frame, "\xff\xff\xff\xff\xff\xff") // a bridge passes it up
	const packets = 5
	sent := uint64(0)
	send := func() {
		t.Helper()
		for _, r := range rungs {
			s := labtest.NewSender(t, h, r.port)
			for range packets {
				if err := s.Send(frame); err != nil {
					t.Fatal(err)
				}
			}
		}
		sent += packets
	}
	for _, r := range rungs {
		wants(t, a.rules(t, "add", "drop iface "+r.iface+" udp"), 0)
	}
	send()
	a.dropsAll(t, sent)
	a.reportsLadder(t, h)

	a.kill()
	send()
	for _, r := range rungs[:2] {
		if got := atXDP(t, h, r.iface); !strings.HasSuffix(got, "waymark_xdp") {
			t.Errorf("%s after a kill: %q", r.iface, got)
		}
	}
	a = start(t, run)
	send()
	a.dropsAll(t, sent)
	a.stop(t)
	left := waymark(t, "restore", "--pins", "--pin-dir", pins)
	wants(t, left, 0)
	if n := strings.Count(left.stdout, "program at xdp"); n != 2 {
		t.Errorf("%+v", left)
	}
	for i, want := range []string{"", "", "native of_others"} {
		await.True(t, fmt.Sprintf("%q at XDP of %s", want, rungs[i].iface), func() bool { return atXDP(t, h, rungs[i].iface) == want }) // the kernel takes its time
	}
}

// dropsAll checks that the rule of each interface has dropped all packets.
func (a *agent) dropsAll(t *testing.T, sent uint64) {
	t.Helper()
	for _, r := range rungs {
		drop := a.dropping(t, "drop iface "+r.iface+" udp", sent)
		if drop.Dropped != sent || drop.Packets != sent {
			t.Errorf("%s: %+v, sent %d", r.iface, drop, sent)
		}
	}
}

// reportsLadder checks what is reported of each interface.
func (a *agent) reportsLadder(t *testing.T, h *lab.Host) {
	t.Helper()
	text := must(t, nil, program, "status", "--socket", a.socket)
	for _, i := range gateservice.StatusOf(new(a.status(t))).Interfaces {
		for _, r := range rungs {
			if r.iface == i.Name && (i.Hook != r.hook || !strings.HasPrefix(i.Why, r.why) || r.why == "" && i.Why != "" || !strings.Contains(text, r.why)) {
				t.Errorf("%+v, want %+v\n%s", i, r, text)
			}
		}
	}
	for _, r := range rungs {
		if got := must(t, h, program, "doctor", r.iface); !strings.Contains(got, r.doctor) {
			t.Errorf("%s: no %q in\n%s", r.iface, r.doctor, got)
		}
	}
	if tcx := strings.Contains(a.stderr.String(), "to keep it takes a kernel with TCX"); tcx == kernel.TCX.Has() {
		t.Errorf("what is not kept is reported %t: %s", tcx, a.stderr)
	}
	native := "native xdp"
	if kernel.XDPHints.Has() {
		native = "native xdp-bound"
	}
	await.True(t, "hooks in the status", func() bool {
		modes := map[string]bool{}
		for _, hook := range a.status(t).Hooks {
			modes[hook.Iface+" "+hook.Mode] = hook.State == "attached"
		}
		return modes[native] && modes["behind xdp-generic"] && !modes["busy xdp"]
	})
}

package datapath

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// chainEnder passes packets and ends the chain.
func chainEnder(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "end_chain", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// Programs of others before ours are found in both modes; those behind, and those
// of a second Waymark, are not among them.
func TestAhead(t *testing.T) {
	for _, clsact := range []bool{true, false} {
		if !clsact && !kernel.TCX.Has() {
			continue
		}
		v := newSilentVeth(t)
		for range 2 {
			if _, err := load(t, Config{MaxEntries: 64, Clsact: true}).Attach(v.target()); err != nil {
				t.Fatal(err)
			}
		}
		d := load(t, Config{MaxEntries: 64, Clsact: clsact})
		if _, err := d.Attach(v.target()); err != nil {
			t.Fatal(err)
		}
		ender := chainEnder(t)
		filter := func(preference uint16, name string) {
			t.Helper()
			if err := v.do(func() error {
				return netlink.FilterAdd(&netlink.BpfFilter{
					FilterAttrs: netlink.FilterAttrs{
						LinkIndex: v.to, Parent: netlink.HANDLE_MIN_INGRESS, Protocol: unix.ETH_P_ALL, Priority: preference,
					},
					Fd: ender.FD(), Name: name, DirectAction: true,
				})
			}); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want string) {
			t.Helper()
			ahead, err := d.Ahead(v.target().Iface)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(ahead[flow.Ingress], ", "); !strings.Contains(got, want) || (want == "") != (got == "") || len(ahead[flow.Egress]) > 0 {
				t.Errorf("clsact %t: before ours %v, want %q at ingress", clsact, ahead, want)
			}
		}
		expect("")
		filter(clsactPriority+1, "behind")
		expect("")
		filter(clsactPriority-1, "before")
		if clsact {
			expect("tc filter before (pref 99)")
		} else {
			expect("") // programs of TCX run before all filters
			var l link.Link
			if err := v.do(func() (err error) {
				l, err = link.AttachTCX(link.TCXOptions{Interface: v.to, Program: ender, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			expect("end_chain")
		}
		if err := v.do(func() error {
			chain, err := Chain(v.to, flow.Ingress)
			if got := fmt.Sprint(chain); err == nil && (!strings.Contains(got, "pref 99") || !strings.Contains(got, "waymark")) {
				t.Errorf("chain %s", got)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

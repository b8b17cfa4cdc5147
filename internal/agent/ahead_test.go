package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
)

// endChain attaches a program that lets every packet pass and ends the chain.
func endChain(t *testing.T, h *lab.Host, anchor link.Anchor) (detach func()) {
	t.Helper()
	var l link.Link
	err := h.Do(func() error {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "end_chain", Type: ebpf.SchedCLS, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer p.Close()
		i, err := netlink.LinkByName(h.Interfaces[0].Name)
		if err != nil {
			return err
		}
		l, err = link.AttachTCX(link.TCXOptions{
			Interface: i.Attrs().Index, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: anchor,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	detach = func() { l.Close() }
	t.Cleanup(detach)
	return detach
}

// A program that ends the chain before ours hides packets: that is warned of, and
// noticed in the counters. One that is there before the agent runs after it.
func TestProgramAhead(t *testing.T) {
	if !kernel.TCX.Has() {
		t.Skip("a kernel without TCX")
	}
	l := newLab(t)
	alpha, beta := l.Host("alpha"), l.Host("beta")
	send := func() {
		t.Helper()
		if _, err := traffic.Bulk(within(t, time.Minute), alpha, beta, traffic.BulkConfig{
			To: netip.AddrPortFrom(beta.Addr6(), 5000), Bytes: 100_000_000,
		}); err != nil {
			t.Fatal(err)
		}
	}
	warning := func(a *running, want string) {
		t.Helper()
		await.Success(t, func() error {
			var got string
			a.hooks.inspectAll()
			for _, h := range a.Status().Hooks {
				if h.Direction == flow.Egress.String() {
					got = h.Warning
				}
			}
			if want == "" && got == "" || want != "" && strings.Contains(got, want) {
				return nil
			}
			return fmt.Errorf("the hook at egress warns %q, want %q", got, want)
		})
	}

	detach := endChain(t, alpha, link.Head())
	cfg, _ := agentConfig(t, "ebpf", alpha)
	a := start(t, cfg)
	warning(a, "")
	send()
	waitCovered(t, a)
	detach()

	detach = endChain(t, alpha, link.Head())
	warning(a, "behind end_chain")
	send()
	warning(a, "traffic bypasses it")
	detach()
	send()
	warning(a, "")
}

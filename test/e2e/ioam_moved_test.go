package e2e

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/wire/ioam"
)

// An interface of the node that moves to another network namespace has no role there, and nothing of the agent's stays on
// it; back again, it is what it was.
func TestInterfaceOfNodeMoves(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	away := labtest.New(t, lab.Config{Topology: "pair"}).Host("beta")
	const name = "to-alpha"
	b := start(t, setup{host: beta, config: quick + `interfaces: [to-*]
ioam:
  node: {id: 2}
  interfaces: [to-alpha:21]
  namespaces: [{id: 123}]
`})
	c := ioamtest.NewCourier(t, alpha, beta)
	filled := func() int {
		t.Helper()
		option := c.Carry(t, emptyTrace(t))[4:]
		body, err := ioam.DecodeOption(option[:2+int(option[1])])
		if err != nil {
			t.Fatal(err)
		}
		hops, err := body.(*ioam.Trace).Hops()
		if err != nil {
			t.Fatal(err)
		}
		return len(hops)
	}
	if n := filled(); n != 1 {
		t.Fatalf("%d nodes wrote into the trace", n)
	}
	hooks := func() (attached int) {
		for _, h := range b.status(t).Hooks {
			if h.State == "attached" {
				attached++
			}
		}
		return attached
	}
	attached := hooks()
	// The other host has an interface of this name, too.
	must(t, beta, "ip", "link", "set", name, "down")
	must(t, beta, "ip", "link", "set", name, "name", "moves", "netns", away.Netns)
	await.Success(t, func() error {
		if n := hooks(); n != 0 {
			return notYet("%d hooks", n)
		}
		return nil
	})
	if n := programsOn(t, away, "moves"); n != 0 {
		t.Errorf("%d programs stay on the interface", n)
	}
	must(t, away, "ip", "link", "set", "moves", "name", name, "netns", beta.Netns)
	must(t, beta, "ip", "link", "set", name, "up")
	must(t, beta, "ip", "-6", "addr", "add", beta.Interfaces[0].Addr6.String(), "dev", name, "nodad")
	await.Success(t, func() error {
		if n := hooks(); n != attached {
			return notYet("%d hooks", n)
		}
		r, err := traffic.Echo(t.Context(), alpha, traffic.EchoConfig{To: beta.Addr6(), Count: 1, Size: 56, Timeout: time.Second})
		if err == nil && r.Lost > 0 {
			err = notYet("no answer")
		}
		return err
	})
	if n := filled(); n != 1 {
		t.Errorf("back again: %d nodes wrote into the trace", n)
	}
	status := b.status(t)
	if n := ioamservice.StatusOf(&status); n == nil || n.Written != 2 {
		t.Errorf("status %+v", n)
	}
	b.stop(t)
}

// programsOn is how many programs an interface of a host has at tc.
func programsOn(t *testing.T, h *lab.Host, name string) (n int) {
	t.Helper()
	if err := h.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			r, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
			if err != nil {
				return err
			}
			n += len(r.Programs)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

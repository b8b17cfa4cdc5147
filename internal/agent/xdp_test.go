package agent

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/stage/toystage"
	"github.com/waymark-net/waymark/internal/topology"
)

// inside is a probe that attaches in another namespace.
type inside struct {
	*ebpfProbe
	do func(func() error) error
}

func (p inside) Attach(l topology.Link, d []flow.Direction, _ func(func() error) error) (string, error) {
	return p.ebpfProbe.Attach(l, d, p.do)
}

// A stage at XDP has a row of its own in the status of an interface.
func TestStatusOfXDP(t *testing.T) {
	alpha := newLab(t).Host("alpha")
	link, err := linkOf(alpha)
	if err != nil {
		t.Fatal(err)
	}
	link.Iface = flow.NewIface(0, link.IfIndex)
	log := slog.New(slog.DiscardHandler)
	p := &ebpfProbe{Datapath: datapath.New(datapath.Config{
		MaxEntries: 64, Stages: []*datapath.Stage{toystage.New(60).Stage(toystage.Program)},
	}, log)}
	if err := p.Load(); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cfg := config.Default()
	cfg.History.Use = "never"
	registry := topology.NewRegistry(time.Minute, time.Now)
	h := newHooks(registry, inside{p, alpha.Do}, &reservations{newHeadroom(registry, log), nil, log}, cfg.Directions, log)
	h.add(link, nil)
	rows := func() (out []string) {
		for _, row := range h.status() {
			out = append(out, row.Direction+" "+row.Mode+" "+row.State+row.Error)
		}
		return out
	}
	mode := string(p.Modes(link.Iface)[datapath.TCIngress])
	if got, want := rows(), []string{"ingress xdp attached", "ingress " + mode + " attached", "egress " + mode + " attached"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	h.remove(link, false)
	if got := rows(); got != nil {
		t.Errorf("after it was detached: %q", got)
	}
}

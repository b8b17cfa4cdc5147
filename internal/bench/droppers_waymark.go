package bench

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// droppedRule is what each way drops.
const droppedRule = "drop udp dst port 53"

// gateStarter applies a rule by Waymark's programs, which also count flows: as an agent does.
func gateStarter(mode gate.Mode) starter { return rulesStarter(mode, droppedRule) }

// rulesStarter applies rules.
func rulesStarter(mode gate.Mode, text string) starter {
	return func(_ context.Context, s *space, iface, _ string) (dropping, error) {
		l, err := s.handle.LinkByName(iface)
		if err != nil {
			return dropping{}, err
		}
		set, _, err := rules.Parse("bench", text, rules.Options{})
		if err != nil {
			return dropping{}, err
		}
		cfg := gate.Default()
		cfg.Mode = mode
		cfg.Tables.Lines *= 2 // 100,000 addresses that are far apart
		cfg.Tables.Rules = max(cfg.Tables.Rules, uint32(len(set.Rules)))
		log := slog.New(slog.DiscardHandler)
		g := gate.New(cfg, log)
		d := datapath.New(datapath.Config{MaxEntries: 1 << 14, Stages: []*datapath.Stage{g.Stage(func(string) bool { return true })}}, log)
		if err := d.Open(); err != nil {
			return dropping{}, err
		}
		stop := func() error {
			d.Close()
			return nil
		}
		if err := g.Apply(set); err != nil {
			return dropping{}, fmt.Errorf("%w (%w)", err, stop())
		}
		_, err = d.Attach(datapath.Target{
			Iface: flow.NewIface(0, uint32(l.Attrs().Index)), Name: iface,
			Do: func(f func() error) error { return s.do(probeProcessor, f) },
		})
		if err != nil {
			return dropping{}, err
		}
		return dropping{stop: stop, count: func(context.Context) (uint64, error) {
			c, err := g.Counters()
			if err != nil {
				return 0, err
			}
			var n uint64
			for _, r := range c.Rules {
				n += r.Dropped
			}
			return n, nil
		}}, nil
	}
}

package agent

import (
	"log/slog"

	"github.com/waymark-net/waymark/internal/capture"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/topology"
)

// afpacketProbe is the capture as a probe.
type afpacketProbe struct {
	*capture.Capture
	log *slog.Logger
}

func newAFPacketProbe(cfg config.Config, tunnels []flow.Tunnel, log *slog.Logger) *afpacketProbe {
	return &afpacketProbe{
		Capture: capture.New(capture.Config{
			MaxEntries: cfg.Flow.MaxEntries, RingSize: cfg.Flow.RingSize, Sampling: cfg.Flow.Sampling, Tunnels: tunnels,
		}, capture.Deps{Log: log}),
		log: log,
	}
}

func (p *afpacketProbe) Name() string { return "afpacket" }

func (p *afpacketProbe) Attach(link topology.Link, directions []flow.Direction, do func(func() error) error) (string, error) {
	return "afpacket", p.Capture.Attach(capture.Target{
		Iface: link.Iface, IfIndex: link.IfIndex, Name: link.String(), NoLinkHeader: !link.Ethernet(), Directions: directions, Do: do,
	})
}

func (p *afpacketProbe) Status() (obs.Table, []obs.Program, error) {
	s := p.Stats()
	return obs.Table{
		MaxEntries: s.MaxEntries, Entries: s.Entries, MemoryBytes: s.Memory, Unattributed: s.Unattributed,
	}, nil, nil
}

func (p *afpacketProbe) Close() {
	if err := p.Capture.Close(); err != nil {
		p.log.Error("closing the packet sockets", "error", err)
	}
}

package bench

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/inband/pdm"
	"github.com/waymark-net/waymark/internal/inband/pdm/pdmtest"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/kernel"
)

// probe is a datapath, with PDM or without.
type probe struct {
	*datapath.Datapath
	marker *pdm.Marker // nil: PDM is off
}

// loadProbe loads the probe and puts it on the interface; cfg is nil for PDM off.
func (h *idleHost) loadProbe(cfg *pdm.Config, slots uint32, policies []policy.Policy) (*probe, error) {
	d := &probe{}
	table := datapath.Config{MaxEntries: slots, WholeTable: true}
	if cfg != nil {
		d.marker = pdm.New(*cfg)
		table.Stages = []*datapath.Stage{d.marker.Stage()}
	}
	d.Datapath = datapath.New(table, slog.New(slog.DiscardHandler))
	if err := h.open(d.Datapath); err != nil {
		return nil, err
	}
	if cfg != nil {
		if err := d.marker.SetPolicies(policies); err != nil {
			return nil, err
		}
	}
	return d, h.attach(d.Datapath)
}

// alongside loads programs of the benchmark over the maps of a probe.
func alongside(d *probe, flows int, names ...string) (*ebpf.Collection, error) {
	if flows == 0 {
		flows = endless
	}
	return d.Alongside(pdmtest.LoadBench, func(spec *ebpf.CollectionSpec) error {
		loadOnly(spec, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })...)
		return spec.Variables["bench_flows"].Set(uint32(flows))
	})
}

// measure runs the programs of a scenario in turns.
func (s scenario) measure(rounds int) (PDMCost, error) {
	h, err := newIdleHost()
	if err != nil {
		return PDMCost{}, err
	}
	defer h.close()
	policies := []policy.Policy{{To: netip.MustParsePrefix("2001:db8::/32"), For: time.Hour}}
	if s.unnamed {
		policies = nil
	}
	cpus, err := kernel.CPUs("online")
	if err != nil {
		return PDMCost{}, err
	}
	slots := uint32(cpus * max(1<<16, slotsPerFlow*s.flows))
	on, err := h.loadProbe(&s.cfg, slots, policies)
	if err != nil {
		return PDMCost{}, err
	}
	off, err := h.loadProbe(nil, slots, nil)
	if err != nil {
		return PDMCost{}, err
	}
	names := []string{"bench_known", s.base, s.stage, s.whole}
	if s.known {
		names = append(names, "bench_mark")
	}
	if s.marked {
		names = append(names, "bench_resize")
	}
	with, err := alongside(on, s.flows, names...)
	if err != nil {
		return PDMCost{}, err
	}
	defer with.Close()
	without, err := alongside(off, s.flows, s.whole)
	if err != nil {
		return PDMCost{}, err
	}
	defer without.Close()
	plain, frame, err := s.frames()
	if err != nil {
		return PDMCost{}, err
	}
	if s.egress {
		frame = plain
	}
	turns := []*contender{{name: "base", program: with.Programs[s.base]}, {name: "stage", program: with.Programs[s.stage]}}
	if s.whole != "" {
		turns = append(
			turns,
			&contender{name: "whole", program: with.Programs[s.whole]},
			&contender{name: "without", program: without.Programs[s.whole]},
		)
	}
	if s.marked {
		turns = append(turns, &contender{name: "resize", program: with.Programs["bench_resize"]})
	}
	err = h.space.do(0, func() error {
		// Else few datagrams would be marked: nobody answers them.
		if _, err := testRunOn(h.index, with.Programs["bench_known"], plain, 1); err != nil {
			return err
		}
		warm := max(1000, 2*s.flows)
		if s.known {
			if _, err := testRunOn(h.index, with.Programs["bench_mark"], plain, warm); err != nil {
				return err
			}
		}
		for _, c := range turns {
			if _, err := testRunOn(h.index, c.program, frame, warm); err != nil {
				return err
			}
		}
		if s.whole != "" {
			if err := s.settle(on, h.index, with, frame); err != nil {
				return err
			}
			if err := s.settle(off, h.index, without, frame); err != nil {
				return err
			}
		}
		for range rounds {
			for _, c := range turns {
				ns, err := testRunOn(h.index, c.program, frame, max(100_000, s.flows))
				if err != nil {
					return err
				}
				c.values = append(c.values, ns)
			}
		}
		return nil
	})
	if err != nil {
		return PDMCost{}, err
	}
	if err := s.check(on.marker); err != nil {
		return PDMCost{}, err
	}
	return s.cost(turns), nil
}

// settle sizes the flow table of a probe for the packets that its whole program gets.
func (s scenario) settle(p *probe, index int, programs *ebpf.Collection, frame []byte) error {
	return settle(p.Datapath, s.flows, func(packets int) error {
		_, err := testRunOn(index, programs.Programs[s.whole], frame, packets)
		return err
	})
}

// check makes sure that packets took the way that is measured.
func (s scenario) check(m *pdm.Marker) error {
	stats, err := m.Stats()
	if err != nil {
		return err
	}
	passed, err := m.Passed()
	if err != nil {
		return err
	}
	reasons := map[string]uint64{}
	for _, u := range passed {
		reasons[u.Reason] += u.Packets
	}
	var most, least uint64 // of packets that went another way, and this one
	switch s.what {
	case costRefused:
		most, least = stats.Marked, reasons["new_refused"]
	case costUnnamed:
		most, least = stats.Marked, 100_000
	case costStranger:
		most, least = stats.Read, reasons["no_state"]
	case costRead, costAnswer:
		most, least = reasons["no_state"]+reasons["contended"]+reasons["elsewhere"], stats.Read
	default:
		most, least = reasons["new_refused"]+reasons["new_failed"]+reasons["mtu"]+reasons["no_space"], stats.Marked
	}
	if least < 100_000 || most > least/100 {
		return fmt.Errorf("of the packets, %d went the way that is measured and %d another: %v", least, most, reasons)
	}
	return nil
}

// cost takes off what is not the program's. Enlarging and reducing the packet are
// the same work in the kernel, so taking away is half of both.
func (s scenario) cost(turns []*contender) PDMCost {
	values := map[string][]float64{}
	for _, c := range turns {
		values[c.name] = c.values
	}
	back := make([]float64, len(values["base"]))
	for i, resize := range values["resize"] {
		back[i] = (resize - values["base"][i]) / 2
	}
	net := func(name string, back []float64) []float64 {
		out := make([]float64, len(back))
		for i, v := range values[name] {
			out[i] = v - values["base"][i] - back[i]
		}
		return out
	}
	c := PDMCost{What: s.what, Direction: "ingress", Flows: s.flows, Stage: spreadOf(net("stage", back))}
	if s.egress {
		c.Direction = "egress"
	}
	if s.whole != "" {
		whole, without := net("whole", back), net("without", make([]float64, len(back)))
		added := pairwise(whole, without, minus)
		a, b := spreadOf(whole), spreadOf(without)
		c.Whole, c.Without, c.Added = &a, &b, &added
	}
	return c
}

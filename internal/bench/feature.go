package bench

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
)

// measureRare gives each of the packets a table of its own.
func measureRare(cfg Config) ([]Cost, error) {
	var out []Cost
	for _, k := range rareKinds() {
		cost, err := measureOne(datapath.Config{MaxEntries: 1 << 16}, k, cfg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		cost.Program = k.name
		out = append(out, cost)
	}
	return out, nil
}

func measureOne(table datapath.Config, k kind, cfg Config) (Cost, error) {
	var s stage
	defer s.close()
	if _, err := s.load(table, program.Bench, k, 1, [][2]string{{"bench_empty", costEmpty}, {"bench_ingress", costIngress}}); err != nil {
		return Cost{}, err
	}
	if err := s.run(1, 200_000, cfg.visits()*cfg.rounds(1)); err != nil {
		return Cost{}, err
	}
	return s.contenders.cost(s.contenders[1]), nil
}

// measureFeatures holds the program with its features off against one that was
// built without them, and shows what they cost when they are on.
func measureFeatures(cfg Config) ([]Cost, error) {
	var s stage
	defer s.close()
	plain, arp := kinds()[0], rareKind("ARP (in no flow)")
	tunnels := []flow.Tunnel{flow.TunnelVXLAN, flow.TunnelGeneve, flow.TunnelGRE, flow.TunnelIPIP}
	for _, v := range []struct {
		cfg   datapath.Config
		load  func() (*ebpf.CollectionSpec, error)
		kind  kind
		shown [][2]string
	}{
		{datapath.Config{}, program.Bench, plain, [][2]string{{"bench_empty", costEmpty}, {"bench_ingress", costPlain}}},
		{datapath.Config{}, program.Without, plain, [][2]string{{"bench_without", "ingress, built without"}}},
		{datapath.Config{Tunnels: tunnels}, program.Bench, plain, [][2]string{{"bench_ingress", costTunnels}}},
		{datapath.Config{Sampling: 100}, program.Bench, plain, [][2]string{{"bench_ingress", costSampling}}},
		{datapath.Config{}, program.Bench, arp, [][2]string{{"bench_ingress", costARP}}},
	} {
		v.cfg.MaxEntries = 1 << 16
		if _, err := s.load(v.cfg, v.load, v.kind, 1, v.shown); err != nil {
			return nil, err
		}
	}
	if err := s.run(1, 200_000, cfg.visits()*cfg.rounds(1)); err != nil {
		return nil, err
	}
	return s.contenders.against(costPlain), nil
}

// Programs of measureFeatures.
const (
	costPlain    = "ingress, all off"
	costTunnels  = "ingress, tunnels on"
	costSampling = "ingress, sampling 1:100"
	costARP      = "ingress, ARP"
)

// against are the costs with what each program adds to the reference.
func (cs contenders) against(reference string) []Cost {
	costs := cs.costs()
	for i, c := range cs {
		if c.name != reference && c.name != costEmpty {
			costs[i].Added = new(Spread)
			*costs[i].Added = pairwise(c.values, cs.values(reference), minus)
		}
	}
	return costs
}

// measureHash compares keys of the hash as operands of instructions with keys in
// memory, for the packets with the fewest and the most of them.
func measureHash(cfg Config) (out []Cost, err error) {
	for _, k := range kinds() {
		var s stage
		const patched = "keys in instructions"
		if _, err := s.load(datapath.Config{MaxEntries: 1 << 16}, program.Bench, k, 1000, [][2]string{
			{"bench_empty", costEmpty},
			{"bench_parse", k.name + ", " + patched},
			{"bench_rodata", k.name + ", keys in .rodata"},
		}); err != nil {
			s.close()
			return nil, err
		}
		packets := 200_000
		if cfg.Quick {
			packets = 20_000
		}
		err := s.run(1000, packets, 2*cfg.visits()*cfg.rounds(1))
		out = append(out, s.contenders.against(k.name + ", " + patched)[1:]...)
		s.close()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

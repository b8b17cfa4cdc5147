package bench

import (
	"fmt"

	inbandpdm "github.com/waymark-net/waymark/internal/inband/pdm"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

// PDMCost is what a packet costs, in ns. What it takes to put a test's packet
// back, or to make it the next one, is taken off.
type PDMCost struct {
	What      string  `json:"what"`
	Direction string  `json:"direction"`
	Flows     int     `json:"flows"`             // 0: each packet is of a new one
	Stage     Spread  `json:"stage"`             // parsing and PDM, over the empty program
	Whole     *Spread `json:"whole,omitempty"`   // all stages, flows counted too, over the empty program
	Without   *Spread `json:"without,omitempty"` // the same with PDM off
	Added     *Spread `json:"added,omitempty"`   // the difference of both
}

// What is measured, as a report names it.
const (
	costMark     = "mark"
	costMarkFull = "mark, 1200 bytes of payload"
	costMarkNew  = "mark the first packet of a flow"
	costRefused  = "first packet, no new state allowed"
	costUnnamed  = "no policy names the flow"
	costRead     = "read"
	costAnswer   = "read, both delays measured"
	costStranger = "marked, but no state of its flow"
)

// scenario is one sort of packet. Its programs are those of bpf/test/pdm_bench.bpf.c.
type scenario struct {
	what    string
	flows   int // 0: new ones without end
	egress  bool
	payload int // bytes
	cfg     inbandpdm.Config
	unnamed bool // without a policy
	known   bool // every flow is marked before
	marked  bool // leaves with a header more, which the test takes away
	stage   string
	base    string // what the stage is measured over
	whole   string
}

func (s scenario) String() string { return s.what + ", " + flowsOf(s.flows) }

// flowsOf is a number of flows in words.
func flowsOf(n int) string {
	switch n {
	case 0:
		return "new flows"
	case 1:
		return "one flow"
	}
	return fmt.Sprintf("%d flows", n)
}

func pdmScenarios() []scenario {
	// As by default, but for what would end the test: there is room for all
	// flows, and they may begin at once.
	cfg := inbandpdm.Default()
	cfg.MaxEntries, cfg.NewPerSecond, cfg.MarksPerSecond = 1<<17, 1<<31, 0
	refusing, bounded := cfg, cfg
	refusing.NewPerSecond = 1
	bounded.MaxEntries, bounded.Evict = inbandpdm.Default().MaxEntries, true
	mark := scenario{
		what: costMark, egress: true, payload: payload, cfg: cfg, known: true, marked: true,
		stage: "bench_mark", base: "bench_empty", whole: "bench_egress",
	}
	read := scenario{
		what: costRead, payload: payload, cfg: cfg, known: true,
		stage: "bench_read", base: "bench_number", whole: "bench_ingress",
	}
	with := func(s scenario, change func(*scenario)) scenario {
		change(&s)
		return s
	}
	var out []scenario
	for _, n := range []int{1, 1000, 1 << 16} {
		out = append(out, with(mark, func(s *scenario) { s.flows = n }))
	}
	out = append(
		out,
		with(mark, func(s *scenario) { s.what, s.flows, s.payload = costMarkFull, 1, 1200 }),
		with(mark, func(s *scenario) { s.what, s.cfg, s.known = costMarkNew, bounded, false }),
		with(mark, func(s *scenario) { s.what, s.cfg, s.known, s.marked = costRefused, refusing, false, false }),
	)
	for _, n := range []int{1, 1 << 16} {
		out = append(out, with(mark, func(s *scenario) {
			s.what, s.flows, s.unnamed, s.known, s.marked = costUnnamed, n, true, false, false
		}))
	}
	for _, n := range []int{1, 1000, 1 << 16} {
		out = append(out, with(read, func(s *scenario) { s.flows = n }))
	}
	answer := func(s *scenario) {
		s.what, s.stage, s.base, s.whole = costAnswer, "bench_answer", "bench_make_answer", ""
	}
	for _, n := range []int{1, 1000} {
		out = append(out, with(read, func(s *scenario) { answer(s); s.flows = n }))
	}
	return append(out, with(read, func(s *scenario) { s.what, s.flows, s.known = costStranger, 1, false }))
}

// endless is more flows than a test has packets; a power of two, as stride is odd.
const endless = 1 << 30

// frames are a packet as the stack sends it and the marked one of its peer.
func (s scenario) frames() (plain, marked []byte, err error) {
	const a, b = "2001:db8:a::1", "2001:db8:b::2"
	plain = packet.Eth().IPv6(a, b).UDP(40000, 53).Payload(s.payload).Bytes()
	back := packet.Eth().IPv6(b, a).UDP(53, 40000).Payload(s.payload).Bytes()
	const ethernet = 14
	ip, err := pdm.Insert(back[ethernet:], pdm.Option{PSNTP: 1, DeltaTLS: 1, ScaleDTLS: 20, DeltaTLR: 1, ScaleDTLR: 20})
	if err != nil {
		return nil, nil, fmt.Errorf("marking a packet: %w", err)
	}
	return plain, append(back[:ethernet:ethernet], ip...), nil
}

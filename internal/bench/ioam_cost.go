package bench

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/datapath"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/ioam"
)

// IOAMCost is what a packet with a trace costs at a transit node, in ns over the empty program.
type IOAMCost struct {
	Fields   string         `json:"fields"`
	Type     ioam.TraceType `json:"trace_type"`
	XDP      Spread         `json:"xdp"`       // data of the node added at XDP
	General  Spread         `json:"general"`   // the same, by the code for headers of any form
	TC       Spread         `json:"tc"`        // at tc ingress
	Through  Spread         `json:"through"`   // at tc ingress, and completed at tc egress
	Ingress  Spread         `json:"ingress"`   // all stages of tc ingress, flows counted too
	Without  Spread         `json:"without"`   // the same, with no node registered
	Plain    Spread         `json:"plain"`     // all stages of tc ingress for a packet without options
	PlainOff Spread         `json:"plain_off"` // the same, with no node registered
}

// traceKind is a Trace-Type, and what it asks for.
type traceKind struct {
	fields string
	kind   ioam.TraceType
}

const (
	traceIDs   = ioam.HopLimitNodeID | ioam.InterfaceIDs
	traceTimes = traceIDs | ioam.TimestampSeconds | ioam.TimestampFraction
	traceDelay = traceTimes | ioam.TransitDelay
)

var traceKinds = []traceKind{
	{"ids of node and interfaces", traceIDs},
	{"and time", traceTimes},
	{"and transit delay", traceDelay},
	{"all that Linux fills", ioam.DefinedFields &^ ioam.OpaqueStateSnapshot},
}

// benchSpace is the namespace of the traces.
const benchSpace = 123

// benchNode is a node with one interface.
func benchNode() inbandioam.Node {
	return inbandioam.Node{
		ID: 3, WideID: 0x030303, Namespaces: []inbandioam.Namespace{{ID: benchSpace, Data: 1, WideData: 2}},
		Interfaces: []inbandioam.Interface{{Name: idleName, ID: 31, WideID: 0x310031, Role: inbandioam.RoleBoth}},
	}
}

// tracedFrame is a datagram with an empty trace for the data of so many nodes.
func tracedFrame(kind ioam.TraceType, hops int) (frame []byte, lengths uint16, err error) {
	const ethernet, ipv6, udp = 14, 40, 17
	trace, err := ioam.NewTrace(benchSpace, kind, hops*kind.NodeSize(0))
	if err != nil {
		return nil, 0, err
	}
	header, err := ioam.AppendHeader(nil, udp, trace)
	if err != nil {
		return nil, 0, err
	}
	plain := packet.Eth().IPv6("2001:db8:a::1", "2001:db8:b::2").UDP(40000, 53).Payload(payload).Bytes()
	frame = append(frame, plain[:ethernet+ipv6]...)
	frame = append(append(frame, header...), plain[ethernet+ipv6:]...)
	size := len(frame) - ethernet - ipv6
	frame[ethernet+4], frame[ethernet+5], frame[ethernet+6] = byte(size>>8), byte(size), 0
	return frame, uint16(trace.NodeLen)<<11 | uint16(trace.Remaining), nil
}

// paddedOtherwise has two Pad1 in front of the trace, in place of a PadN: a form that programs prepare nothing for.
func paddedOtherwise(frame []byte) []byte {
	const padding = 14 + 40 + 2
	frame = slices.Clone(frame)
	clear(frame[padding : padding+2])
	return frame
}

// measureIOAMCosts runs the programs of a transit node, in turns.
func measureIOAMCosts(kinds []traceKind, rounds int) (out []IOAMCost, err error) {
	h, err := newIdleHost()
	if err != nil {
		return nil, err
	}
	defer h.close()
	node := inbandioam.New(inbandioam.Config{Time: ioam.POSIX, Transit: inbandioam.TransitXDP})
	on := datapath.New(datapath.Config{
		MaxEntries: 1 << 16, Stages: []*datapath.Stage{node.Stage(func(string) bool { return true })},
	}, slog.New(slog.DiscardHandler))
	off := datapath.New(datapath.Config{MaxEntries: 1 << 16}, slog.New(slog.DiscardHandler))
	for _, d := range []*datapath.Datapath{on, off} {
		if err := h.open(d); err != nil {
			return nil, err
		}
	}
	if err := node.Apply(benchNode()); err != nil {
		return nil, err
	}
	if err := h.attach(on); err != nil {
		return nil, err
	}
	for _, k := range kinds {
		cost, err := h.measureTrace(on, off, k, rounds)
		if err != nil {
			return nil, fmt.Errorf("trace of %s: %w", k.fields, err)
		}
		out = append(out, cost)
	}
	stats, err := node.Stats()
	if err != nil {
		return nil, err
	}
	// Five programs of each kind, of which one completes.
	if least := uint64(rounds * ioamPackets * len(kinds)); stats.Written < 4*least || stats.Completed < least {
		return nil, fmt.Errorf("%d traces were filled and %d completed, of %d", stats.Written, stats.Completed, 4*least)
	}
	return out, nil
}

// ioamPackets are those of a round.
const ioamPackets = 100_000

// measureTrace measures traces of one kind.
func (h *idleHost) measureTrace(on, off *datapath.Datapath, k traceKind, rounds int) (c IOAMCost, err error) {
	frame, lengths, err := tracedFrame(k.kind, 2)
	if err != nil {
		return c, err
	}
	plain := packet.Eth().IPv6("2001:db8:a::1", "2001:db8:b::2").UDP(40000, 53).Payload(payload).Bytes()
	turns := ioamTurns{}
	for _, l := range []struct {
		of      *datapath.Datapath
		lengths uint16
		frame   []byte
		shown   map[string]string // programs, by name of the turn
	}{
		{on, lengths, frame, map[string]string{
			"empty": "bench_empty", "tc": "bench_transit", "through": "bench_through", "ingress": "bench_ingress",
		}},
		{off, lengths, frame, map[string]string{"without": "bench_ingress"}},
		{on, 0, plain, map[string]string{"plain": "bench_ingress"}},
		{off, 0, plain, map[string]string{"plainOff": "bench_ingress", "plainEmpty": "bench_empty"}},
	} {
		coll, err := l.of.Alongside(program.IOAM, func(spec *ebpf.CollectionSpec) error {
			loadOnly(spec, slices.Collect(maps.Values(l.shown))...)
			return setLengths(spec, l.lengths)
		})
		if err != nil {
			return c, err
		}
		defer coll.Close()
		for name, p := range l.shown {
			turns[name] = &ioamTurn{program: coll.Programs[p], run: testRunForwarded, frame: l.frame}
		}
	}
	early, err := earlyOf(on)
	if err != nil {
		return c, err
	}
	defer early.Close()
	for name, next := range map[string]*ebpf.Program{"emptyXDP": nil, "xdp": early} {
		coll, err := repeatXDP(next, lengths)
		if err != nil {
			return c, err
		}
		defer coll.Close()
		turns[name] = &ioamTurn{program: coll.Programs["bench_again_xdp"], run: testRunXDP, frame: frame}
	}
	turns["general"] = &ioamTurn{program: turns["xdp"].program, run: testRunXDP, frame: paddedOtherwise(frame)}
	if err := h.space.do(0, func() error { return turns.run(h.index, rounds) }); err != nil {
		return c, err
	}
	return IOAMCost{
		Fields: k.fields, Type: k.kind,
		XDP: turns.over("xdp", "emptyXDP"), General: turns.over("general", "emptyXDP"), TC: turns.over("tc", "empty"), Through: turns.over("through", "empty"),
		Ingress: turns.over("ingress", "empty"), Without: turns.over("without", "empty"),
		Plain: turns.over("plain", "plainEmpty"), PlainOff: turns.over("plainOff", "plainEmpty"),
	}, nil
}

// ioamTurn is a program that takes turns with others.
type ioamTurn struct {
	program *ebpf.Program
	run     func(index int, p *ebpf.Program, frame []byte, n int) (float64, error)
	frame   []byte
	values  []float64
}

type ioamTurns map[string]*ioamTurn

func (turns ioamTurns) run(index, rounds int) error {
	names := slices.Sorted(maps.Keys(turns))
	for round := range rounds + 1 {
		for _, name := range names {
			t := turns[name]
			ns, err := t.run(index, t.program, t.frame, ioamPackets)
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				t.values = append(t.values, ns)
			}
		}
	}
	return nil
}

func (turns ioamTurns) over(name, empty string) Spread {
	return pairwise(turns[name].values, turns[empty].values, minus)
}

// setLengths says what an empty trace has.
func setLengths(spec *ebpf.CollectionSpec, lengths uint16) error {
	return spec.Variables["bench_lengths"].Set([2]byte{byte(lengths >> 8), byte(lengths)})
}

// earlyOf is the program at XDP.
func earlyOf(d *datapath.Datapath) (*ebpf.Program, error) {
	all, err := d.Programs()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Name == datapath.Early.Name {
			return ebpf.NewProgramFromID(ebpf.ProgramID(p.ID))
		}
	}
	return nil, fmt.Errorf("there is no program %s", datapath.Early.Name)
}

// repeatXDP loads what makes a trace empty again and then runs a program; nil: the empty one.
func repeatXDP(next *ebpf.Program, lengths uint16) (*ebpf.Collection, error) {
	spec, err := program.IOAMXDP()
	if err != nil {
		return nil, err
	}
	if err := setLengths(spec, lengths); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, err
	}
	if next == nil {
		next = coll.Programs["bench_empty_xdp"]
	}
	if err := coll.Maps["bench_next"].Put(uint32(0), next); err != nil {
		coll.Close()
		return nil, fmt.Errorf("chaining %s: %w", next, err)
	}
	return coll, nil
}

package ioam

import (
	"log/slog"
	"maps"
	"math"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

func init() { datapath.ReadOnce() }

// ids of the interfaces and the node of the tests.
const (
	nodeID, wideID     = 3, 0x00112233445566
	fromID, toID       = 31, 32
	fromWide, toWide   = 0x31000031, 0x32000032
	spaceA, spaceB     = 123, 65535
	dataA              = 0xcafe0123
	wideA              = 0xcafe012345678901
	unknown            = 77
	depth, occupancy   = 0x01020304, 0x05060708
	hostA, hostB       = "2001:db8:a::1", "2001:db8:b::2"
	fromName, toName   = "from", "to"
	verdictPass        = -1
	verdictDrop        = 2
	prefix             = 14 // of the link header
	metaBytes          = 32
	optionAt, hopLimit = prefix + 40 + 4, 64
)

// schema is the one of spaceB.
var schema = &wire.Snapshot{Schema: 0x777777, Data: []byte("waymark's schema")}

// node is the node of the tests, with interfaces from and to.
func node() Node {
	return Node{
		ID: nodeID, WideID: wideID,
		Interfaces: []Interface{
			{Name: fromName, ID: fromID, WideID: fromWide, Role: RoleBoth},
			{Name: toName, ID: toID, WideID: toWide, Role: RoleBoth},
		},
		Namespaces: []Namespace{
			{ID: spaceA, Data: dataA, WideData: wideA},
			{ID: spaceB, Data: 1, WideData: 2, Schema: schema},
		},
	}
}

// reference is the same node of package wire/ioam.
func reference(f wire.TimeFormat) *wire.Node {
	n := node()
	out := &wire.Node{ID: n.ID, IDWide: n.WideID, Format: f, Namespaces: map[uint16]wire.Namespace{}, ChecksumNeutral: true}
	for _, ns := range n.Namespaces {
		out.Namespaces[ns.ID] = wire.Namespace{Data: ns.Data, DataWide: ns.WideData, Schema: ns.Schema}
	}
	return out
}

// host runs the programs as the interfaces of a node would.
type host struct {
	*datapath.Datapath
	node *Registrar
	veth *datapathtest.Veth
	// Those that a test has used: each takes the verifier longer than most tests.
	colls map[string]*ebpf.Collection
}

func newHost(t testing.TB, cfg Config, n Node, others ...*datapath.Stage) *host {
	t.Helper()
	h := &host{node: New(cfg), veth: datapathtest.NewVeth(t), colls: map[string]*ebpf.Collection{}}
	h.Datapath = datapath.New(datapath.Config{MaxEntries: 64, Stages: append(others,
		h.node.Stage(func(string) bool { return true }),
	)}, slog.New(slog.DiscardHandler))
	if err := h.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(h.close)
	for name, index := range map[string]int{fromName: h.veth.From, toName: h.veth.To} {
		if err := h.node.attach(flow.NewIface(0, uint32(index)), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.node.Apply(n); err != nil {
		t.Fatal(err)
	}
	h.queued(t, math.MaxUint64)
	return h
}

// queued has the programs know what waits at from, which tests of both hooks leave by, too, until a time.
func (h *host) queued(t testing.TB, until uint64) {
	t.Helper()
	if err := h.node.maps["ioam_queues"].Put(uint32(flow.NewIface(0, uint32(h.veth.From))), abiIoamQueue{Until: until, Depth: depth, Occupancy: occupancy}); err != nil {
		t.Fatal(err)
	}
}

func (h *host) close() {
	for _, c := range h.colls {
		c.Close()
	}
	h.Close()
}

// coll has one program of ioamtest, and its variables.
func (h *host) coll(t testing.TB, program string) *ebpf.Collection {
	t.Helper()
	if c := h.colls[program]; c != nil {
		return c
	}
	c, err := h.Alongside(ioamtest.Load, func(s *ebpf.CollectionSpec) error {
		maps.DeleteFunc(s.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != program })
		return s.Variables["test_out"].Set(uint32(h.veth.To))
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	h.colls[program] = c
	return c
}

func (h *host) program(t testing.TB, name string) *ebpf.Program {
	t.Helper()
	return h.coll(t, name).Programs[name]
}

// tc runs a program of ioamtest on a packet that arrives at from.
func (h *host) tc(t testing.TB, program string, frame []byte) (out []byte, verdict int32) {
	t.Helper()
	var ctx [48]uint32
	ctx[10] = uint32(h.veth.From)
	return h.run(t, h.program(t, program), ctx, frame)
}

// early runs the program at XDP.
func (h *host) early(t testing.TB, frame []byte) (out []byte, verdict int32) {
	t.Helper()
	// struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
	xdp, err := h.Copy(datapath.Early)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	out, verdict = h.run(t, xdp, [6]uint32{0, uint32(len(frame)), 0, uint32(h.veth.From), 0, 0}, frame)
	if len(out) > len(frame) { // what is left in front of the frame for tc
		out = out[metaBytes:]
	}
	return out, verdict
}

func (h *host) run(t testing.TB, p *ebpf.Program, ctx any, frame []byte) (out []byte, verdict int32) {
	t.Helper()
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+1024), Context: ctx}
	v, err := p.Run(&opts)
	if err != nil {
		t.Fatalf("%v: in the namespace of the interfaces?", err)
	}
	return opts.DataOut, int32(v)
}

// inside runs a test in the namespace of the interfaces, once: each change of the namespace takes
// longer than a packet.
func (h *host) inside(t testing.TB, test func()) {
	t.Helper()
	if err := h.veth.Do(func() error {
		test()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// carrying is a packet with a Hop-by-Hop header of these options.
func carrying(t testing.TB, bodies ...wire.Body) []byte {
	t.Helper()
	header, err := wire.AppendHeader(nil, 17, bodies...)
	if err != nil {
		t.Fatal(err)
	}
	return framed(header)
}

// framed is a packet with this Hop-by-Hop header.
func framed(header []byte) []byte {
	frame := packet.Eth().IPv6(hostA, hostB).UDP(1000, 2000).Payload(20).Bytes()
	out := append([]byte{}, frame[:prefix+40]...)
	out = append(out, header...)
	out = append(out, frame[prefix+40:]...)
	out[prefix+6] = 0
	payload := len(out) - prefix - 40
	out[prefix+4], out[prefix+5] = byte(payload>>8), byte(payload)
	return out
}

// The verifier takes every program, in all variants: tests of single hosts load only what they use.
func TestPrograms(t *testing.T) {
	d := datapath.New(datapath.Config{MaxEntries: 64, Stages: []*datapath.Stage{
		New(Config{Transit: TransitXDP, NICTime: true}).Stage(func(string) bool { return true }),
	}}, slog.New(slog.DiscardHandler))
	t.Run("of agents", func(t *testing.T) {
		if err := d.Load(); err != nil {
			t.Fatalf("%+v", err)
		}
	})
	t.Cleanup(d.Close)
	t.Run("of tests", func(t *testing.T) {
		c, err := d.Alongside(ioamtest.Load, nil)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		c.Close()
	})
}

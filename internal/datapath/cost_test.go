package datapath_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/balance"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/forward"
	"github.com/waymark-net/waymark/internal/gate"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	inband "github.com/waymark-net/waymark/internal/inband/pdm"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/test/interp"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

const (
	goldenCosts = "testdata/cost.txt"
	// The verifier gives up at a million, and prunes less on older kernels.
	maxVerified = 150_000
	// Rules and traces at tc ingress.
	maxVerifiedGate = 220_000
	// An empty program sets the verdict and ends.
	emptyProgram = 2
	// Packets of one kind that are counted: whole batches.
	costPackets = 16
)

// costFeatures is a combination of features that the table of costs has.
type costFeatures struct {
	name string
	cfg  datapath.Config
	pdm  *inband.Config
	ioam bool // the interface belongs to an IOAM node
	gate bool // packets meet rules, of which there are none
	// forward: packets are forwarded at XDP
	forward bool
	// balance: packets go to backends
	balance bool
	hints   bool // hints are passed on
}

// balancerOfAll balances at all interfaces, and decapsulates.
func balancerOfAll(log *slog.Logger) *balance.Balancer {
	all := func(string) bool { return true }
	return balance.New(balance.Config{Connections: 1 << 16, NewPerSecond: 1, Idle: time.Hour, Clients: all, Unwraps: all}, log)
}

// programs are those of its rows. Egress and links without a header have nothing of the gate that others do not have.
func (f costFeatures) programs() []*datapath.Program {
	if f.forward || f.balance {
		return []*datapath.Program{datapath.Early}
	}
	if f.gate {
		return []*datapath.Program{datapath.Ingress, datapath.Early}
	}
	return []*datapath.Program{datapath.Egress, datapath.Ingress}
}

// links reports whether they are without a header.
func (f costFeatures) links() []bool {
	if f.gate || f.forward || f.balance {
		return []bool{false}
	}
	return []bool{false, true}
}

// limit is how much the verifier may look at.
func (f costFeatures) limit() uint32 {
	if f.gate && f.ioam {
		return maxVerifiedGate
	}
	return maxVerified
}

var allTunnels = []flow.Tunnel{flow.TunnelVXLAN, flow.TunnelGeneve, flow.TunnelGRE, flow.TunnelIPIP}

func allCostFeatures() []costFeatures {
	marks := inband.Default()
	marks.MarksPerSecond = 0 // the cost is that of a mark
	strips := marks
	strips.Strip = true
	return []costFeatures{
		{name: "none"},
		{name: "sampling", cfg: datapath.Config{Sampling: 1000}},
		{name: "tunnels", cfg: datapath.Config{Tunnels: allTunnels}},
		{name: "pdm", pdm: &marks},
		{name: "pdm,strip", pdm: &strips},
		{name: "ioam", ioam: true},
		{name: "all", cfg: datapath.Config{Sampling: 1000, Tunnels: allTunnels}, pdm: &strips, ioam: true},
		{name: "gate", gate: true},
		{name: "gate,pdm", pdm: &strips, gate: true},
		{name: "gate,ioam", ioam: true, gate: true},
		{name: "gate,all", cfg: datapath.Config{Sampling: 1000, Tunnels: allTunnels}, pdm: &strips, ioam: true, gate: true},
		{name: "forward", forward: true},
		{name: "balance", balance: true},
		{name: "balance,all", cfg: datapath.Config{Sampling: 1000, Tunnels: allTunnels}, ioam: true, gate: true, forward: true, balance: true},
		{name: "hints,all", cfg: datapath.Config{Sampling: 1000, Tunnels: allTunnels}, ioam: true, gate: true, forward: true, balance: true, hints: true},
		{name: "forward,all", cfg: datapath.Config{Sampling: 1000, Tunnels: allTunnels}, ioam: true, gate: true, forward: true},
	}
}

// costKind is a kind of packet.
type costKind struct {
	name  string
	frame func(i int) []byte                   // the i-th
	needs func(costFeatures, *costedHook) bool // nil: nothing
	state uint32                               // of sampling before each packet; 0: one after which it is counted
}

// costedHook is a row of the table.
type costedHook struct {
	program *datapath.Program
	noLink  bool
	// sent is the sequence number that a marked flow has used.
	sent uint16
}

const (
	hostA, hostB = "2001:db8:a::1", "2001:db8:b::2"
	portA, portB = 40000, 53
	markedPort   = 5353 // a policy names it
	etherLen     = 14
)

// marked and answer are packets of the flow that a policy names, in its directions.
var marked = packet.Eth().IPv6(hostA, hostB).UDP(portA, markedPort).Payload(100).Bytes()

func answer(number, last uint16) []byte {
	o := pdm.Option{PSNTP: number, PSNLR: last}
	option := packet.Option{Type: pdm.OptionType, Data: o.AppendTo(nil)[2:]}
	return packet.Eth().IPv6(hostB, hostA).DestOpts(option).UDP(markedPort, portA).Payload(100).Bytes()
}

func costKinds(h *costedHook) []costKind {
	same := func(b packet.Builder) func(int) []byte {
		frame := b.Bytes()
		return func(int) []byte { return frame }
	}
	v4, v6 := packet.Eth().IPv4("192.0.2.1", "198.51.100.1"), packet.Eth().IPv6(hostA, hostB)
	inner := packet.Eth().IPv4("10.0.0.1", "10.0.0.2").UDP(1000, 53).Payload(100)
	ethernet := func(_ costFeatures, h *costedHook) bool { return !h.noLink }
	return []costKind{
		{name: "IPv4/UDP", frame: same(v4.UDP(portA, portB).Payload(100))},
		{name: "IPv4/TCP", frame: same(v4.TCP(portA, 443).Flags(packet.ACK).Payload(100))},
		{name: "IPv6/UDP", frame: same(v6.UDP(portA, portB).Payload(100))},
		{name: "IPv6/TCP", frame: same(v6.TCP(portA, 443).Flags(packet.ACK).Payload(100))},
		{name: "ICMP", frame: same(v4.ICMP(8, 0, 77, 1).Payload(8))},
		{name: "VLAN", frame: same(packet.Eth().VLAN(5).IPv4("192.0.2.1", "198.51.100.1").UDP(portA, portB).Payload(100)), needs: ethernet},
		{name: "options", frame: same(v6.HopByHop().UDP(portA, portB).Payload(100))},
		{name: "ARP", frame: same(packet.Eth().ARP("192.0.2.1", "192.0.2.2")), needs: ethernet},
		{
			name: "VXLAN", frame: same(v4.UDP(portA, 4789).VXLAN(7).Raw(inner.Bytes())),
			needs: func(f costFeatures, _ *costedHook) bool { return len(f.cfg.Tunnels) > 0 },
		},
		{
			name: "sampled out", frame: same(v4.UDP(portA, portB).Payload(100)), state: 1 << 31,
			needs: func(f costFeatures, _ *costedHook) bool { return f.cfg.Sampling > 1 },
		},
		{
			name: "marked", frame: func(int) []byte { return marked },
			needs: func(f costFeatures, h *costedHook) bool {
				return f.pdm != nil && !h.noLink && h.program.Hook == datapath.TCEgress
			},
		},
		{
			name: "read", frame: func(i int) []byte { return answer(100+uint16(i), h.sent) },
			needs: func(f costFeatures, h *costedHook) bool {
				return f.pdm != nil && !h.noLink && h.program.Hook == datapath.TCIngress
			},
		},
	}
}

// TestCost: what the verifier does for each program, and the instructions that a packet of a known flow takes over those
// of an empty program, are what the golden file says. After a deliberate change: make golden.
func TestCost(t *testing.T) {
	v := datapathtest.NewVeth(t)
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "features\tlink\thook\tverified\tpeak states\tinstructions")
	for _, k := range costKinds(nil) {
		fmt.Fprintf(w, "\t%s", k.name)
	}
	fmt.Fprintln(w)
	for _, f := range allCostFeatures() {
		d := loadCosted(t, v, f)
		for _, noLink := range f.links() {
			for _, program := range f.programs() {
				h := &costedHook{program: program, noLink: noLink}
				link := "ethernet"
				if noLink {
					link = "none"
				}
				p := d.Loaded(program, noLink)
				fmt.Fprintf(w, "%s\t%s\t%v\t%s", f.name, link, program.Hook, verifierWork(t, p, f.limit()))
				for _, k := range costKinds(h) {
					cost := "-"
					if program.Hook != datapath.XDP && (k.needs == nil || k.needs(f, h)) { // the interpreter knows tc
						if f.pdm != nil && !noLink {
							h.sent = sendMarked(t, v, d.Loaded(datapath.Egress, false))
						}
						cost = costOf(t, d, v, p, k, h)
					}
					fmt.Fprintf(w, "\t%s", cost)
				}
				fmt.Fprintln(w)
			}
		}
		d.Close()
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	compareCosts(t, table.String())
}

// loadCosted loads programs whose constants do not depend on the machine.
func loadCosted(t *testing.T, v *datapathtest.Veth, f costFeatures) *datapath.Datapath {
	t.Helper()
	var marker *inband.Marker
	if f.pdm != nil {
		marker = inband.New(*f.pdm)
		f.cfg.Stages = append(f.cfg.Stages, marker.Stage())
	}
	if f.ioam {
		node := inbandioam.New(inbandioam.Config{Transit: inbandioam.TransitTC})
		f.cfg.Stages = append(f.cfg.Stages, node.Stage(func(string) bool { return true }))
	}
	if f.gate {
		f.cfg.Stages = append(f.cfg.Stages, gate.New(gate.Default(), slog.New(slog.DiscardHandler)).Stage(func(string) bool { return true }))
	}
	if f.forward {
		f.cfg.Stages = append(f.cfg.Stages, forward.New(forward.Config{}, slog.New(slog.DiscardHandler)).Stage(func(string) bool { return true }))
	}
	if f.balance {
		f.cfg.Stages = append(f.cfg.Stages, balancerOfAll(slog.New(slog.DiscardHandler)).Stage())
	}
	if f.hints {
		reader := hints.NewReader(&hints.Config{}, slog.New(slog.DiscardHandler))
		f.cfg.Stages = append(f.cfg.Stages, reader.Stage(), reader.Passing())
	}
	d := datapath.New(f.cfg, slog.New(slog.DiscardHandler))
	t.Cleanup(d.Close)
	if err := d.LoadFixed(func(p *datapath.Program, noLink bool) bool {
		marks := f.pdm != nil && p == datapath.Egress && !noLink // what is read
		return marks || slices.Contains(f.programs(), p) && slices.Contains(f.links(), noLink)
	}); err != nil {
		t.Fatalf("%+v", err)
	}
	if marker == nil {
		return d
	}
	if _, err := d.Attach(datapath.Target{Iface: flow.NewIface(0, uint32(v.From)), Name: "from", Do: v.Do}); err != nil {
		t.Fatal(err)
	}
	named := policy.Policy{
		To: netip.MustParsePrefix("::/0"), Protos: []uint8{packet.ProtoUDP}, For: time.Hour,
		Ports: []policy.Ports{{From: markedPort, To: markedPort}},
	}
	if err := marker.SetPolicies([]policy.Policy{named}); err != nil {
		t.Fatal(err)
	}
	knowPath(t, d, netip.MustParseAddr(hostB))
	return d
}

// knowPath lets all datagrams to a service be marked: struct pdm_path of bpf/pdm/abi.h says that a marked one arrived,
// at a time that is always recent.
func knowPath(t *testing.T, d *datapath.Datapath, host netip.Addr) {
	t.Helper()
	paths := d.Map("mark_paths")
	key, path := make([]byte, paths.KeySize()), make([]byte, paths.ValueSize())
	remote := host.As16()
	copy(key, remote[:])
	// struct pdm_path_key and pdm_path: offsets of the members.
	const port, proto, passed = 16 + 4, 16 + 4 + 2, 2 * 8
	binary.BigEndian.PutUint16(key[port:], markedPort)
	key[proto] = packet.ProtoUDP
	binary.NativeEndian.PutUint64(path[passed:], 1<<63-1)
	if err := paths.Put(key, path); err != nil {
		t.Fatal(err)
	}
}

// inKernel runs a program in the kernel.
func inKernel(t *testing.T, v *datapathtest.Veth, p *ebpf.Program, frame []byte) (out []byte) {
	t.Helper()
	err := v.Do(func() error {
		var ctx [48]uint32
		ctx[10] = uint32(v.From)
		opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 512), Context: ctx}
		_, err := p.Run(&opts)
		out = opts.DataOut
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sendMarked sends a packet of the flow that a policy names, and returns its sequence number.
func sendMarked(t *testing.T, v *datapathtest.Veth, egress *ebpf.Program) uint16 {
	t.Helper()
	o, err := pdm.Find(inKernel(t, v, egress, marked)[etherLen:])
	if err != nil {
		t.Fatal(err)
	}
	return o.PSNTP
}

// verifierWork is columns of the table.
func verifierWork(t *testing.T, p *ebpf.Program, limit uint32) string {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	verified, _ := info.VerifiedInstructions()
	if verified > limit {
		t.Errorf("the verifier looked at %d instructions", verified)
	}
	size, err := info.TranslatedSize()
	if err != nil {
		t.Fatal(err)
	}
	peak := peakStates.FindStringSubmatch(p.VerifierLog)
	if peak == nil {
		t.Fatalf("no peak_states in the verifier's log:\n%s", p.VerifierLog)
	}
	return fmt.Sprintf("%d\t%s\t%d", verified, peak[1], size/8)
}

var peakStates = regexp.MustCompile(`peak_states (\d+)`)

// costOf runs packets of a kind in the kernel until their flow is known, and then as many more in an interpreter: first
// some that are not measured, and what those counted must be what a drain finds.
func costOf(t *testing.T, d *datapath.Datapath, v *datapathtest.Veth, p *ebpf.Program, k costKind, h *costedHook) string {
	t.Helper()
	defer datapathtest.OnOneProcessor(t)()
	d.Counted(t)
	link := etherLen
	if h.noLink {
		link = 0
	}
	next := 0
	frame := func() []byte {
		next++
		return k.frame(next)[etherLen-link:]
	}
	state := max(k.state, 1)
	for range costPackets {
		if err := d.Map("sample_state").Put(uint32(0), slices.Repeat([]uint32{state}, ebpf.MustPossibleCPU())); err != nil {
			t.Fatal(err)
		}
		inKernel(t, v, p, frame())
	}
	vm, err := interp.New()
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	vm.Now = monotonic(t)
	if vm.Jiffies, err = d.Tick(); err != nil {
		t.Fatal(err)
	}
	var measured uint64
	for i := range 2 * costPackets {
		if err := vm.Poke("sample_state", state); err != nil {
			t.Fatal(err)
		}
		_, _, cost, err := vm.Run(p, interp.Frame{
			Data: frame(), Link: link, IfIndex: uint32(v.From), Received: h.program.Hook == datapath.TCIngress,
		})
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		if i >= costPackets { // what the first ones differ in from those in the kernel is the tick
			measured += cost.Instructions - emptyProgram
		}
	}
	if err := vm.WriteBack(); err != nil {
		t.Fatal(err)
	}
	var packets uint64
	for _, delta := range d.Counted(t) {
		packets = max(packets, delta.Packets)
	}
	if want := uint64(3 * costPackets); packets != want && !(k.name == "ARP" || d.Samples()) {
		t.Errorf("%s: %d packets are counted, want %d", k.name, packets, want)
	}
	return fmt.Sprintf("%.1f", float64(measured)/costPackets)
}

func monotonic(t *testing.T) uint64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return uint64(now.Nano())
}

package ioam

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// gapAt is where options are written to in the packets of these tests: in the payload, so that they stay
// packets whatever is written.
const gapAt = prefix + 40 + 8

// verdicts of test_insert.
const (
	written   = 0
	notChosen = 1
)

func insertionTo(prefix string, bodies ...wire.Body) Insertion {
	return Insertion{Policy: policy.Policy{To: netip.MustParsePrefix(prefix)}, Take: 1, Of: 1, Options: bodies}
}

func datagram(to string, sport, dport uint16) []byte {
	return packet.Eth().IPv6(hostA, to).UDP(sport, dport).Payload(MaxBlock + 16).Bytes()
}

// insert runs choose.h and write.h on a packet that leaves by from; received: the interface where it was
// received, 0 for one of this host.
func (h *host) insert(t testing.TB, frame []byte, form, received int) ([]byte, int32) {
	t.Helper()
	h.setForm(t, form)
	var ctx [48]uint32
	ctx[9], ctx[10] = uint32(received), uint32(h.veth.From)
	return h.run(t, h.program(t, "test_insert"), ctx, frame)
}

func (h *host) setForm(t testing.TB, form int) {
	t.Helper()
	for name, value := range map[string]uint32{"test_form": uint32(form), "test_at": gapAt} {
		if err := h.coll(t, "test_insert").Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
}

// proofShares are those of a path of three nodes.
func proofShares(t testing.TB) []wire.Share {
	t.Helper()
	shares, err := wire.NewShares(prime, secret, 3, rand.NewChaCha8([32]byte{}))
	if err != nil {
		t.Fatal(err)
	}
	return shares
}

const (
	prime  = 0x7fff0000fa884685
	secret = 0x1234
)

// inserting is the node of the tests with these insertions, and proof of transit in spaceA.
func inserting(t testing.TB, list ...Insertion) Node {
	t.Helper()
	n := node()
	s := proofShares(t)[0]
	n.Namespaces[0].Proof = &Proof{Prime: s.Prime, Share: s.Share, Poly2: s.Poly2, LPC: s.LPC, HasShare: true}
	n.Insertions = list
	return n
}

// randomBody is an option of any kind, as an insertion has it.
func randomBody(t testing.TB, random *rand.Rand) wire.Body {
	t.Helper()
	space := []uint16{spaceA, spaceB, 0}[random.IntN(3)]
	typ := wire.TraceType(random.Uint32()) & wire.TraceType(random.Uint32()>>8) & 0xFFFFFE
	switch random.IntN(6) {
	case 0:
		return &wire.POT{Namespace: space}
	case 1:
		return &wire.E2E{Namespace: space, Type: []wire.E2EType{
			wire.E2ESequence64, wire.E2ESequence32 | wire.E2ESeconds, wire.E2ESequence64 | wire.E2ESeconds | wire.E2EFraction, wire.E2EFraction,
		}[random.IntN(4)]}
	case 2:
		return &wire.DEX{Namespace: space, Type: typ, Extension: wire.DEXFlags(random.IntN(4) << 6)}
	case 3:
		tr, err := wire.NewIncrementalTrace(space, typ, 4*random.IntN(62))
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	tr, err := wire.NewTrace(space, typ, 4*random.IntN(62))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// Insertions, in one host: loading it takes longer than the tests.
func TestInsertions(t *testing.T) {
	h := newHost(t, Config{Time: wire.PTP, Transit: TransitTC}, node())
	t.Run("as configured", h.insertionsAsConfigured)
	t.Run("sequences", h.insertionSequences)
	t.Run("frequency", h.insertionFrequency)
	t.Run("all flows", h.insertionSamplesAllFlows)
	t.Run("policies", h.insertionPolicies)
	t.Run("tshark", h.insertionsInTshark)
	t.Run("changes", h.insertionChanges)
	t.Run("refused", h.insertionRefused)
}

// What the programs write is what was configured: random insertions of one to eleven options, in all
// forms, decoded by package wire/ioam.
func (h *host) insertionsAsConfigured(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	h.inside(t, func() {
		for round := range 150 {
			in := insertionTo("::/0")
			in.Name = fmt.Sprint(round) // numbers begin again
			for range 1 + random.IntN(MaxOptions) {
				in.Options = append(in.Options, randomBody(t, random))
			}
			n := inserting(t, in)
			if err := h.node.Apply(n); err != nil {
				if in.Size() <= MaxBlock {
					t.Fatalf("%+v: %v", in.Options, err)
				}
				continue
			}
			r := reading{t: t, n: &n, round: round, received: 0}
			if round%3 == 1 {
				r.received = h.veth.To
				n.ClosedDomain = true
				if err := h.node.Apply(n); err != nil {
					t.Fatal(err)
				}
			}
			h.forms(t, &r)
		}
	})
}

// forms writes an insertion in its four forms, and reads what was written.
func (h *host) forms(t *testing.T, r *reading) {
	t.Helper()
	sizes := []int{}
	for _, b := range r.n.Insertions[0].blocks(r.n) {
		header, appended := b.sizes()
		sizes = append(sizes, header, appended)
	}
	frame := datagram(hostB, 1000, 2000)
	for form, size := range sizes {
		out, verdict := h.insert(t, frame, form, r.received)
		if size == 0 {
			if verdict == written {
				t.Fatalf("form %d was written, and there is none", form)
			}
			continue
		}
		if verdict != written {
			t.Fatalf("form %d: verdict %d", form, verdict)
		}
		if !bytes.Equal(out[:gapAt], frame[:gapAt]) || !bytes.Equal(out[gapAt+size:], frame[gapAt+size:]) {
			t.Fatalf("form %d wrote outside of its %d bytes", form, size)
		}
		header := out[gapAt : gapAt+size]
		if form%2 == 1 { // behind a header that was there
			header = append([]byte{17, byte(size / 8), 1, 4, 0, 0, 0, 0}, header...)
		} else if header[0] != 0 || int(header[1]) != size/8-1 {
			t.Fatalf("form %d: header of %d bytes begins with % x", form, size, header[:2])
		}
		r.header(blocks[form/2], header)
	}
}

// reading compares options with the insertion that they are of.
type reading struct {
	t        *testing.T
	n        *Node
	round    int
	received int // interface
}

func (r *reading) header(proto uint8, header []byte) {
	r.t.Helper()
	found, err := wire.FindInHeader(proto, header)
	if err != nil {
		r.t.Fatalf("% x: %v", header, err)
	}
	if padding := pads(r.t, header); padding > 7 {
		r.t.Fatalf("%d bytes of padding in a row, and Linux drops packets with more than 7: % x", padding, header)
	}
	var want []wire.Body
	for _, b := range r.n.Insertions[0].Options {
		if b.Kind().Header() == proto {
			want = append(want, b)
		}
	}
	if len(found) != len(want) {
		r.t.Fatalf("%d options, want %d: % x", len(found), len(want), header)
	}
	for i, o := range found {
		body, err := o.Decode()
		// A type of no RFC is what the test asked for.
		if problems, ok := err.(wire.Problems); err != nil && (!ok || !onlyUndefined(problems)) {
			r.t.Fatalf("option %d, % x: %v", i, o.Raw, err)
		}
		r.body(want[i], body)
	}
}

// pads is the longest run of padding.
func pads(t testing.TB, header []byte) (most int) {
	t.Helper()
	run := 0
	for o, err := range ipv6.Options(header) {
		if err != nil {
			t.Fatal(err)
		}
		if !o.IsPadding() {
			run = 0
			continue
		}
		run += o.Size
		most = max(most, run)
	}
	return most
}

func onlyUndefined(problems wire.Problems) bool {
	for _, p := range problems {
		if p.Err.Error() == "" || !bytes.Contains([]byte(p.Err.Error()), []byte("undefined")) {
			return false
		}
	}
	return true
}

func (r *reading) body(want, got wire.Body) {
	r.t.Helper()
	if Space(want) != Space(got) || want.Kind() != got.Kind() {
		r.t.Fatalf("%v of namespace %d, want %v of %d", got.Kind(), Space(got), want.Kind(), Space(want))
	}
	switch want := want.(type) {
	case *wire.Trace:
		r.trace(want, got.(*wire.Trace))
	case *wire.E2E:
		e := got.(*wire.E2E)
		if e.Type != want.Type || e.Sequence64 > 4 || e.Sequence32 > 4 {
			r.t.Fatalf("%+v, want %04x", e, want.Type)
		}
		if e.Type&wire.E2ESeconds != 0 {
			r.near(e.Seconds, e.Fraction)
		}
	case *wire.DEX:
		d := got.(*wire.DEX)
		if d.Type != want.Type || d.Extension != want.Extension || d.Sequence > 4 || d.Extension&wire.DEXFlowID != 0 && d.FlowID == 0 {
			r.t.Fatalf("%+v, want %+v", d, want)
		}
	case *wire.POT:
		p := got.(*wire.POT)
		cumulative := uint64(0)
		if ns, ok := r.n.namespace(p.Namespace); ok && ns.Proof != nil {
			cumulative = wire.Share{Prime: ns.Proof.Prime, Share: ns.Proof.Share, Poly2: ns.Proof.Poly2, LPC: ns.Proof.LPC}.Update(0, p.PktID)
		}
		if p.Cumulative != cumulative || p.PktID == 0 {
			r.t.Fatalf("%+v, want cumulative %x", p, cumulative)
		}
	}
}

// trace compares the first hop with what the node is.
func (r *reading) trace(want, got *wire.Trace) {
	r.t.Helper()
	passage := wire.NewPassage(hopLimit)
	passage.Egress, passage.EgressWide = fromID, fromWide
	if r.received != 0 {
		passage.Ingress, passage.IngressWide = toID, toWide
	}
	hops, err := got.Hops()
	if err != nil {
		r.t.Fatal(err)
	}
	if len(hops) > 0 && want.Type.Has(wire.TimestampSeconds|wire.TimestampFraction) {
		passage.Received = r.near(hops[0].Seconds, hops[0].Fraction)
	} else if len(hops) > 0 && want.Type&(wire.TimestampSeconds|wire.TimestampFraction) != 0 {
		return // half a time
	}
	option, err := wire.AppendOption(nil, want)
	if err != nil {
		r.t.Fatal(err)
	}
	ref := r.n.reference()
	ref.Format = wire.PTP
	expected, _ := ref.Update(option, 4, passage)
	actual, _ := wire.AppendOption(nil, got)
	if !bytes.Equal(actual, expected) {
		r.t.Fatalf("round %d: trace of type %v\n got % x\nwant % x", r.round, want.Type, actual, expected)
	}
}

func (r *reading) near(seconds, fraction uint32) time.Time {
	r.t.Helper()
	at, ok := wire.PTP.Join(seconds, fraction&0x1fffffff, time.Now())
	if since := time.Since(at); !ok || since < -5*time.Second || since > 20*time.Second {
		r.t.Fatalf("time %v", at)
	}
	at, _ = wire.PTP.Join(seconds, fraction, time.Now())
	return at
}

// Sequence numbers count packets of a pair of addresses, or of a flow, and go on when the configuration
// changes, unless the insertion is another one.
func (h *host) insertionSequences(t *testing.T) {
	e2e := &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence64}
	dex := &wire.DEX{Namespace: spaceA, Type: 0x800000, Extension: wire.DEXFlowID | wire.DEXSequence}
	in := insertionTo("2001:db8::/32", e2e, dex)
	apply := func(list ...Insertion) {
		if err := h.node.Apply(inserting(t, list...)); err != nil {
			t.Fatal(err)
		}
	}
	flows := map[uint32]bool{}
	pair := func(frame []byte, want uint64) {
		t.Helper()
		out, _ := h.insert(t, frame, 2, 0)
		if got := binary.BigEndian.Uint64(out[gapAt+12:]); got != want {
			t.Errorf("number %d of the pair, want %d", got, want)
		}
	}
	flow := func(frame []byte, want uint32) {
		t.Helper()
		out, _ := h.insert(t, frame, 0, 0)
		flows[binary.BigEndian.Uint32(out[gapAt+16:])] = true
		if got := binary.BigEndian.Uint32(out[gapAt+20:]); got != want {
			t.Errorf("number %d of the flow, want %d", got, want)
		}
	}
	var ctx [48]uint32
	a, b, other := datagram(hostB, 1, 2), datagram(hostB, 3, 4), datagram("2001:db8:c::3", 1, 2)
	h.inside(t, func() {
		apply(in)
		pair(a, 0)
		pair(b, 1)
		pair(other, 0)
		before, _ := h.node.InsertionCounts()
		ctx[10], ctx[41], ctx[44] = uint32(h.veth.From), 3, 400 // gso_segs, gso_size
		if _, verdict := h.run(t, h.program(t, "test_insert"), ctx, other); verdict != written {
			t.Errorf("verdict %d of a burst", verdict)
		}
		after, err := h.node.InsertionCounts()
		if err != nil || after[0].Inserted-before[0].Inserted != 3 || after[0].Chosen-before[0].Chosen != 1 {
			t.Errorf("a burst of 3: %+v, %+v before, %v", after, before, err)
		}
		pair(other, 2) // a burst has one number
		flow(a, 0)
		flow(b, 0)
		flow(a, 1)
		apply(insertionTo("2001:db8:1::/48", e2e), in) // others come and go
		pair(a, 2)
		flow(b, 1)
		in.Take, in.Options = 1, []wire.Body{e2e, dex, &wire.POT{Namespace: spaceA}}
		apply(in)
		pair(a, 3)
		apply()
		apply(in)
		pair(a, 0) // another insertion
	})
	if len(flows) != 2 {
		t.Errorf("flow ids %v", flows)
	}
}

// pinned runs f on one processor.
func pinned(t testing.TB, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := range len(before) * 64 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
	}()
	f()
}

// k of n packets are exactly that, down to one in a million.
func (h *host) insertionFrequency(t *testing.T) {
	run := func(frame []byte, repeat uint32) {
		h.setForm(t, 2)
		var ctx [48]uint32
		ctx[10] = uint32(h.veth.From)
		opts := ebpf.RunOptions{Data: frame, Context: ctx, Repeat: repeat}
		if _, err := h.program(t, "test_insert").Run(&opts); err != nil {
			t.Fatal(err)
		}
	}
	h.inside(t, func() {
		pinned(t, func() {
			for _, c := range []struct{ take, of, packets uint32 }{
				{1, 1, 1000}, {1, 2, 1000}, {3, 7, 7000}, {99, 100, 10000}, {1, 10000, 100000}, {1, MaxOf, 2 * MaxOf},
			} {
				in := insertionTo("::/0", &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence32})
				in.Take, in.Of = c.take, c.of
				n := inserting(t, in)
				if err := h.node.Apply(n); err != nil {
					t.Fatal(err)
				}
				before, err := h.node.InsertionCounts()
				if err != nil {
					t.Fatal(err)
				}
				run(datagram(hostB, 1, 2), c.packets)
				after, err := h.node.InsertionCounts()
				if err != nil {
					t.Fatal(err)
				}
				want := uint64(c.packets / c.of * c.take)
				named, chosen := after[0].Named-before[0].Named, after[0].Chosen-before[0].Chosen
				if named != uint64(c.packets) || chosen != want || after[0].Inserted-before[0].Inserted != want {
					t.Errorf("%d of %d: %d of %d packets, want %d", c.take, c.of, chosen, named, want)
				}
			}
		})
	})
}

// Flows that take turns are sampled alike: a counter alone would always choose the same one.
func (h *host) insertionSamplesAllFlows(t *testing.T) {
	const flows, rounds = 4, 4000
	in := insertionTo("::/0", &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence32})
	in.Take, in.Of = 1, flows
	if err := h.node.Apply(inserting(t, in)); err != nil {
		t.Fatal(err)
	}
	var frames [flows][]byte
	var chosen [flows]int
	for i := range frames {
		frames[i] = datagram(hostB, uint16(1000+i), 2000)
	}
	h.inside(t, func() {
		for range rounds {
			for i, frame := range frames {
				if _, verdict := h.insert(t, frame, 2, 0); verdict == written {
					chosen[i]++
				}
			}
		}
	})
	for _, n := range chosen { // 1000 each, standard deviation 27
		if n < rounds/flows-140 || n > rounds/flows+140 {
			t.Errorf("chosen %v, want about %d each", chosen, rounds/flows)
			break
		}
	}
}

// A packet gets the insertion with the longest prefix among those that name it, by protocol, ports,
// interface and roles too; and what is known of a flow changes with the configuration.
func (h *host) insertionPolicies(t *testing.T) {
	n := inserting(t)
	n.Interfaces[0].Exceptions = map[uint16]Role{spaceB: RoleIngress}
	space := func(space uint16) wire.Body { return &wire.E2E{Namespace: space, Type: wire.E2EFraction} }
	add := func(name, prefix string, body wire.Body, change func(*Insertion)) {
		in := insertionTo(prefix, body)
		in.Name = name
		change(&in)
		n.Insertions = append(n.Insertions, in)
	}
	tunnel := &Tunnel{Source: netip.MustParseAddr("2001:db8::1"), Destination: netip.MustParseAddr("2001:db8::2")}
	same := func(*Insertion) {}
	add("all", "::/0", space(spaceA), same)
	add("host, tcp", hostB+"/128", space(spaceA), func(in *Insertion) { in.Policy.Protos = []uint8{6} })
	add("net", "2001:db8:b::/48", space(spaceA), func(in *Insertion) { in.Policy.Ports = []policy.Ports{{From: 53, To: 53}, {From: 80, To: 90}} })
	add("tunnel", "2001:db8:c::/48", space(spaceA), func(in *Insertion) { in.Tunnel = tunnel })
	add("other interface", "2001:db8:d::/48", space(spaceA), func(in *Insertion) { in.Policy.Interface = toName })
	add("no role", "2001:db8:e::/48", space(spaceB), same)
	add("second", "::/0", space(spaceA), same)
	for _, c := range []struct {
		to           string
		sport, dport uint16
		forwarded    bool
		want         string // empty: none
	}{
		{hostB, 1, 2, false, "all"},
		{hostB, 1, 53, false, "net"},
		{hostB, 85, 2, false, "net"},
		{hostB, 1, 91, false, "all"},
		{"2001:db8:c::1", 1, 2, false, "tunnel"},
		{"2001:db8:c::1", 1, 2, true, "tunnel"},
		{hostB, 1, 53, true, ""}, // forwarded, and inline
		{"2001:db8:d::1", 1, 2, false, "all"},
		{"2001:db8:e::1", 1, 2, false, "all"},
		{"ff02::1", 1, 2, false, ""},
		{"fe80::1", 1, 2, false, ""},
	} {
		h.names(t, n, c.to, c.sport, c.dport, c.forwarded, c.want)
		open := n
		open.ClosedDomain = true
		if want := c.want; c.forwarded && want == "" {
			h.names(t, open, c.to, c.sport, c.dport, true, "net")
		}
		h.names(t, node(), c.to, c.sport, c.dport, c.forwarded, "")
	}
	reasons := map[string]uint64{}
	counts, err := h.node.Counts()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		reasons[c.Reason] += c.Packets
	}
	if reasons["address"] != 4 || reasons["forwarded"] != 2 {
		t.Errorf("counted %v", reasons)
	}
}

// names sends two packets of a flow, of which the second finds the answer of the first.
func (h *host) names(t *testing.T, n Node, to string, sport, dport uint16, forwarded bool, want string) {
	t.Helper()
	if err := h.node.Apply(n); err != nil {
		t.Fatal(err)
	}
	before, err := h.node.InsertionCounts()
	if err != nil {
		t.Fatal(err)
	}
	received := 0
	if forwarded {
		received = h.veth.To
	}
	h.inside(t, func() {
		for range 2 {
			if _, verdict := h.insert(t, datagram(to, sport, dport), 2, received); (verdict == written) != (want != "") {
				t.Errorf("to %s, ports %d and %d, forwarded %t: verdict %d, want %q", to, sport, dport, forwarded, verdict, want)
			}
		}
	})
	after, err := h.node.InsertionCounts()
	if err != nil {
		t.Fatal(err)
	}
	for i, in := range n.Insertions {
		got := after[i].Inserted - before[i].Inserted
		if expected := in.Name == want; expected != (got == 2) || !expected && got != 0 {
			t.Errorf("to %s, ports %d and %d, forwarded %t: %d packets with %q, want %q", to, sport, dport, forwarded, got, in.Name, want)
		}
	}
}

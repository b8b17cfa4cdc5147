package ioam

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

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
	passage.QueueDepth, passage.BufferOccupancy = depth, occupancy
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

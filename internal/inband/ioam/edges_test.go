package ioam

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	wire "github.com/waymark-net/waymark/wire/ioam"
)

// ending is a packet with these options in Destination Options, behind a trace if there is
// one. port tells packets apart, as the transport header of segments does.
func ending(t testing.TB, trace *wire.Trace, port uint16, options ...wire.Body) []byte {
	t.Helper()
	const udp = 17
	headers, err := wire.AppendHeader(nil, udp, options...)
	if err != nil {
		t.Fatal(err)
	}
	first := byte(60)
	if trace != nil {
		hop, err := wire.AppendHeader(nil, 60, trace)
		if err != nil {
			t.Fatal(err)
		}
		headers, first = append(hop, headers...), 0
	}
	frame := framed(headers)
	frame[prefix+6] = first
	// Length and checksum of UDP: bytes 4 to 7.
	binary.BigEndian.PutUint16(frame[prefix+40+len(headers)+6:], port)
	return frame
}

// Lost, reordered and duplicate packets are what really happened to the packets of a
// sender, with numbers of 32 and 64 bits that wrap.
func (h *host) countsEdges(t *testing.T, random *rand.Rand) {
	send := func(e *wire.E2E, trace *wire.Trace, word uint16) {
		t.Helper()
		if _, v := h.tc(t, "test_in", ending(t, trace, word, e)); v != verdictPass {
			t.Fatalf("verdict %d", v)
		}
	}
	for _, typ := range []wire.E2EType{wire.E2ESequence64, wire.E2ESequence32} {
		trace := traced(pathFields, false, 0, at(wire.POSIX, 1, 1, 2, time.Now(), 0))
		start := uint64(1<<32 - 200) // 32 bits wrap
		var order []uint64
		for n := range uint64(600) {
			switch random.IntN(20) {
			case 0: // lost
			case 1:
				order = append(order, n, n)
			case 2:
				order = append(order, n)
				if k := len(order); k > 2 {
					order[k-1], order[k-2] = order[k-2], order[k-1]
				}
			default:
				order = append(order, n)
			}
		}
		type counts struct{ received, lost, reordered, duplicates int }
		want := counts{received: len(order)}
		arrived, highest := map[uint64]bool{}, uint64(0)
		for _, n := range order {
			switch {
			case arrived[n]:
				want.duplicates++
			case n < highest:
				want.reordered++
			}
			arrived[n], highest = true, max(highest, n)
		}
		for n := order[0]; n < highest; n++ {
			if !arrived[n] {
				want.lost++
			}
		}
		for _, n := range order {
			e := &wire.E2E{Namespace: spaceA, Type: typ, Sequence64: start + n, Sequence32: uint32(start + n)}
			send(e, trace, uint16(n))
			trace = nil
		}
		list, err := h.node.Edges()
		if err != nil || len(list) != 1 {
			t.Fatalf("%d senders, %v", len(list), err)
		}
		e := list[0]
		got := counts{int(e.Received), int(e.Lost), int(e.Reordered), int(e.Duplicates)}
		if got != want || e.Restarts != 0 || e.Discarded != 0 || !e.Sequence || e.Namespace != spaceA || e.Source.String() != hostA || e.Destination.String() != hostB {
			t.Fatalf("%v: %+v, want %+v; %+v", typ, got, want, e)
		}
		h.forgetsEdges(t)
	}
}

// forgetsEdges deletes all senders, as after long silence.
func (h *host) forgetsEdges(t testing.TB) {
	t.Helper()
	p := h.node.paths
	now := time.Now()
	for i := range 2 {
		p.edgesLooked = time.Time{}
		if err := h.node.do(func() error { return p.forgetEdges(now.Add(time.Duration(i) * (edgeLifetime + time.Hour))) }); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := h.node.Edges(); err != nil || len(list) != 0 {
		t.Fatalf("%d senders after long silence, %v", len(list), err)
	}
}

// Bursts, restarts and outages are not loss of single packets; numbers that no other
// follows change nothing; what is malformed or not of this node is not read.
func (h *host) suspectsEdges(t *testing.T) {
	word := uint16(0)
	send := func(numbers ...uint64) {
		t.Helper()
		for _, n := range numbers {
			word++
			h.tc(t, "test_in", ending(t, nil, word, &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence64, Sequence64: n}))
		}
	}
	for _, c := range []struct {
		name    string
		numbers []uint64
		want    string
	}{
		{"in order", []uint64{7, 8, 9}, "3 received, 0 lost, 0 reordered, 0 duplicates, 0 discarded, 0 restarts"},
		{"segments of a burst", []uint64{7, 8, 8, 8, 9, 8}, "6 received, 0 lost, 0 reordered, 0 duplicates, 0 discarded, 0 restarts"},
		{"before the first", []uint64{7, 5}, "2 received, 1 lost, 1 reordered, 0 duplicates, 0 discarded, 0 restarts"},
		{"outage", []uint64{7, 5007, 5008, 5009, 5010}, "5 received, 4999 lost, 0 reordered, 0 duplicates, 0 discarded, 0 restarts"},
		{"restart", []uint64{1 << 40, 1, 2, 3, 4, 5}, "6 received, 0 lost, 0 reordered, 0 duplicates, 0 discarded, 1 restarts"},
		{"forged", []uint64{7, 8, 1 << 50, 9, 1 << 51, 1 << 52, 10}, "4 received, 0 lost, 0 reordered, 0 duplicates, 1 discarded, 0 restarts"},
	} {
		send(c.numbers...)
		list, err := h.node.Edges()
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %d senders, %v", c.name, len(list), err)
		}
		e := list[0]
		if got := fmt.Sprintf("%d received, %d lost, %d reordered, %d duplicates, %d discarded, %d restarts", e.Received, e.Lost, e.Reordered, e.Duplicates, e.Discarded, e.Restarts); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		h.forgetsEdges(t)
	}
	good := ending(t, nil, 1, &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence64 | wire.E2ESeconds | wire.E2EFraction, Sequence64: 1})
	for length := range byte(24) { // Opt Data Len
		bad := append([]byte{}, good...)
		option := bad[prefix+40+2:]
		for option[0] != wire.OptionImmutable {
			option = option[1:]
		}
		if length == option[1] {
			continue
		}
		option[1] = length
		h.tc(t, "test_in", bad)
	}
	h.tc(t, "test_in", ending(t, nil, 1, &wire.E2E{Namespace: spaceB, Type: wire.E2ESequence32}))
	if list, err := h.node.Edges(); err != nil || len(list) > 1 {
		t.Errorf("%d senders of malformed options, %v", len(list), err)
	}
}

// One-way delays are from the time in the option to now, and negative ones say that the
// clocks do not agree.
func (h *host) delaysEdges(t *testing.T, f wire.TimeFormat) {
	for _, c := range []struct {
		ago      time.Duration
		typ      wire.E2EType
		relative bool
	}{
		{20 * time.Millisecond, wire.E2ESeconds | wire.E2EFraction, false},
		{100 * time.Millisecond, wire.E2EFraction, false},
		{-3 * time.Hour, wire.E2ESeconds | wire.E2EFraction, true},
	} {
		var took time.Duration
		for range 10 {
			before := time.Now()
			s, fraction := f.Split(before.Add(-c.ago))
			h.tc(t, "test_in", ending(t, nil, 1, &wire.E2E{Namespace: spaceA, Type: c.typ, Seconds: s, Fraction: fraction}))
			took = max(took, time.Since(before))
		}
		list, err := h.node.Edges()
		if err != nil || len(list) != 1 {
			t.Fatalf("%d senders, %v", len(list), err)
		}
		e := list[0]
		// The clock of the programs follows the wall clock once a second.
		const exact = 2 * time.Millisecond
		if d := e.Delay.Mean() - c.ago; d < -exact || d > took+exact || e.Relative != c.relative || e.Sequence || e.Delay.Count != 10 {
			t.Errorf("%v, %v ago: %v after at most %v, %+v", f, c.ago, e.Delay.Mean(), took, e)
		}
		if p := e.Delay.Quantile(0.5); p < time.Duration(e.Delay.Min) || p > time.Duration(e.Delay.Max) {
			t.Errorf("%v: median %v", f, p)
		}
		h.forgetsEdges(t)
	}
}

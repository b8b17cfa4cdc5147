package ioam_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// Encapsulation, transit by any nodes and decapsulation are the identity on any packet;
// between them, every trace has the hops that filled it, in their order.
func TestJourneyIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := packets().Draw(t, "packet")
		pkt := before
		var traces []*ioam.Trace
		for range rapid.IntRange(1, 4).Draw(t, "traces") {
			tt := traceType().Draw(t, "type") | ioam.HopLimitNodeID
			space := 4 * rapid.IntRange(0, ioam.MaxTraceSpace/4).Draw(t, "space")
			trace, err := ioam.NewTrace(1, tt, space)
			if rapid.Bool().Draw(t, "incremental") {
				trace, err = ioam.NewIncrementalTrace(1, tt, space)
			}
			if err != nil {
				t.Fatal(err)
			}
			if next, err := ioam.Insert(pkt, trace); err == nil {
				pkt = next
				traces = append(traces, trace)
			}
		}
		filled := make([][]uint32, len(traces))
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			node := athos
			node.ID = uint32(i)
			input := bytes.Clone(pkt)
			out, verdicts, err := node.Transit(pkt, ioam.NewPassage(0))
			if err != nil || out == nil || len(verdicts) != len(traces) || !bytes.Equal(pkt, input) {
				t.Fatalf("%v, %v\n%x", verdicts, err, pkt)
			}
			for j, v := range verdicts {
				if v == ioam.Filled {
					filled[j] = append(filled[j], node.ID)
				}
			}
			out[7]--
			pkt = out
		}
		checkFilled(t, pkt, filled)
		back, _, err := ioam.Remove(pkt, ioam.InNamespace(1))
		if err != nil {
			t.Fatal(err)
		}
		back[7] = before[7]
		if !bytes.Equal(back, before) {
			t.Fatalf("\n   in %x\nthere %x\n back %x", before, pkt, back)
		}
	})
}

// checkFilled holds the traces of a packet to the nodes that filled them.
func checkFilled(t *rapid.T, pkt []byte, filled [][]uint32) {
	found, err := ioam.Find(pkt)
	if err != nil || len(found) != len(filled) {
		t.Fatalf("%d options, %v", len(found), err)
	}
	for i, o := range found {
		body, err := o.Decode()
		if err != nil {
			t.Fatalf("option %d: %v", i, err)
		}
		hops, err := body.(*ioam.Trace).Hops()
		var got []uint32
		for _, h := range hops {
			got = append(got, h.NodeID)
		}
		if err != nil || !slices.Equal(got, filled[i]) {
			t.Fatalf("option %d was filled by %v, and has %v, %v", i, filled[i], got, err)
		}
	}
}

// A packet is dropped for one option; traces in a Destination Options header are not
// those of transit nodes; an incremental trace whose packet cannot grow overflows.
func TestTransitLimits(t *testing.T) {
	pkt := raw(4, unhex(t, "31 0e 00 00 0001 0000 800000 00 00000000")...)
	if out, verdicts, err := athos.Transit(pkt, through()); out != nil || err != nil || !slices.Equal(verdicts, []ioam.Verdict{ioam.NodeLenWrong}) {
		t.Errorf("wrong NodeLen: %x, %v, %v", out, verdicts, err)
	}
	pkt = raw(4, unhex(t, "31 0e 00 00 0001 0801 800000 00 00000000")...)
	pkt[6] = ipv6.Destination
	if out, verdicts, err := athos.Transit(pkt, through()); !bytes.Equal(out, pkt) || err != nil || verdicts != nil {
		t.Errorf("in Destination Options: %x, %v, %v", out, verdicts, err)
	}
	pkt = raw(4, unhex(t, "31 0a 00 01 0001 0804 800000 00")...)
	pkt = append(pkt, make([]byte, 65535+40-len(pkt))...)
	pkt[4], pkt[5] = 0xFF, 0xFF
	out, verdicts, err := athos.Transit(pkt, through())
	if err != nil || !slices.Equal(verdicts, []ioam.Verdict{ioam.OverflowSet}) || len(out) != len(pkt) || out[50] != 0x0C {
		t.Errorf("packet of 64 KiB: %v, %v, %x", verdicts, err, out[40:60])
	}
	if _, _, err := athos.Transit(pkt[:20], through()); err == nil {
		t.Error("no error for a packet without a header")
	}
	pkt = raw(4, unhex(t, "31 0e 00 00 0001 0801 800000 00 00000000")...)
	pkt[7] = 0
	if out, _, err := athos.Transit(pkt, through()); err != nil || out[56] != 0 {
		t.Errorf("hop limit 0: %x, %v", out, err)
	}
}

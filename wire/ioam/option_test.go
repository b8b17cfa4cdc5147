package ioam_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vectors are options byte for byte, written down from RFC 9197, 9326 and 9486.
var vectors = []struct {
	name string
	hex  string
	body ioam.Body
}{
	{
		"pre-allocated trace, no node yet", "31 1a 00 00  007b 0804 800000 00  00000000000000000000000000000000",
		&ioam.Trace{Namespace: 123, NodeLen: 1, Remaining: 4, Type: 0x800000, Data: make([]byte, 16)},
	},
	{
		"pre-allocated trace, two nodes of two", "31 1a 00 00  0001 1000 C00000 00  3E000002 00030004 3F000001 00010002",
		&ioam.Trace{
			Namespace: 1, NodeLen: 2, Type: 0xC00000,
			Data: []byte{0x3E, 0, 0, 2, 0, 3, 0, 4, 0x3F, 0, 0, 1, 0, 1, 0, 2},
		},
	},
	{
		"incremental trace, one node", "31 12 00 01  0001 1002 C00000 00  3F000001 00010002",
		&ioam.Trace{
			Incremental: true, Namespace: 1, NodeLen: 2, Remaining: 2, Type: 0xC00000,
			Data: []byte{0x3F, 0, 0, 1, 0, 1, 0, 2},
		},
	},
	{
		"overflow and active", "31 0a 00 00  FFFF 0D00 800000 00",
		&ioam.Trace{Namespace: 0xFFFF, NodeLen: 1, Flags: ioam.Overflow | ioam.Active, Type: 0x800000, Data: []byte{}},
	},
	{
		"proof of transit", "31 16 00 02  0005 00 00  0000000000000001 3b94003e15c4a371",
		&ioam.POT{Namespace: 5, PktID: 1, Cumulative: 0x3b94003e15c4a371},
	},
	{
		"edge to edge, 64 bits and time", "11 16 00 03  0007 B000  0000000000000102 65000001 00000005",
		&ioam.E2E{Namespace: 7, Type: 0xB000, Sequence64: 0x102, Seconds: 0x65000001, Fraction: 5},
	},
	{
		"edge to edge, 32 bits", "11 0a 00 03  0007 4000  00000102",
		&ioam.E2E{Namespace: 7, Type: ioam.E2ESequence32, Sequence32: 0x102},
	},
	{
		"direct export", "11 12 00 04  0007 00 C0 900000 00  0000ABCD 00000009",
		&ioam.DEX{Namespace: 7, Extension: ioam.DEXFlowID | ioam.DEXSequence, Type: 0x900000, FlowID: 0xABCD, Sequence: 9},
	},
	{
		"direct export, sequence number alone", "11 0e 00 04  0007 00 40 900000 00  00000009",
		&ioam.DEX{Namespace: 7, Extension: ioam.DEXSequence, Type: 0x900000, Sequence: 9},
	},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		want := unhex(t, v.hex)
		got, err := ioam.AppendOption(nil, v.body)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: encoded %x, %v; want %x", v.name, got, err, want)
		}
		body, err := ioam.DecodeOption(want)
		if d := cmp.Diff(v.body, body); d != "" || err != nil {
			t.Errorf("%s: %v, %s", v.name, err, d)
		}
	}
}

// The Trace-Types of the examples in RFC 9197 section 4.4.3, others, and their lengths.
func TestNodeLen(t *testing.T) {
	for tt, want := range map[ioam.TraceType]int{
		0xD40000: 4, 0xC00000: 2, 0x900000: 2, 0x840000: 2, 0x940000: 3, 0x308002: 4,
		0xFFF002: 15, 0x800000: 1, 0x000002: 0, 0x000001: 0, 0: 0, 0xFFFFFF: 25, 0x00E000: 6, 0x000FFC: 10,
	} {
		if got := tt.NodeLen(); got != want {
			t.Errorf("%v: NodeLen %d, want %d", tt, got, want)
		}
	}
}

func TestEncodeDecodeIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := body().Draw(t, "body")
		option, err := ioam.AppendOption(nil, b)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ioam.DecodeOption(option)
		if err != nil {
			t.Fatalf("%x: %v", option, err)
		}
		if d := cmp.Diff(b, back, cmp.Comparer(bytes.Equal)); d != "" {
			t.Fatal(d)
		}
	})
}

// What nodes write is what Hops returns, the first node first.
func TestHopsIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tt := traceType().Draw(t, "type")
		if tt == 0 {
			return
		}
		trace := &ioam.Trace{Type: tt, NodeLen: uint8(tt.NodeLen())}
		var want []ioam.Hop
		for range rapid.IntRange(0, 5).Draw(t, "hops") {
			h := hop(t, tt)
			want = append(want, h)
			trace.Data = append(h.AppendTo(nil), trace.Data...)
		}
		got, err := trace.Hops()
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Fatal(err, d)
		}
	})
}

// Every problem is named, with its place in the packet, and what can be read is read.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name   string
		offset int
		hex    string
		want   string // all problems
		read   string // of the body: hops of a trace, else its fields
	}{
		{"misaligned", 2, "31 0e 00 00 0001 0800 800000 00 3F000001", "42: ioam: option is not aligned: at byte 2 of its header, and a multiple of 4 is required", "1 hops"},
		{"reserved byte", 4, "31 0e 07 00 0001 0800 800000 00 3F000001", "46: ioam: reserved bits are set: byte before IOAM-Opt-Type is 07", "1 hops"},
		{"empty", 4, "31 00", "44: ioam: option of the wrong length: Opt Data Len is 0, and IOAM needs at least 2", "nothing"},
		{"unknown kind", 4, "31 04 00 09 0001", "47: ioam: unknown IOAM option type: 9", "nothing"},
		{"E2E with the option type of a trace", 4, "31 0a 00 03 0001 4000 00000001", "44: ioam: unknown IOAM option type: edge to edge with option type 31, and 11 is its own", "sequence 1"},
		{"E2E in Hop-by-Hop", 4, "11 0a 00 03 0001 4000 00000001", "44: ioam: option in the wrong extension header: edge to edge in a Hop-by-Hop Options header", "sequence 1"},
		{"short trace header", 4, "31 09 00 00 0001 0800 800000", "55: ioam: option of the wrong length: the header of a trace needs 8 bytes, and has 7", "nothing"},
		{"NodeLen 0", 4, "31 0e 00 00 0001 0000 800000 00 3F000001", "50: ioam: NodeLen does not fit Trace-Type: it is 0, and Trace-Type 800000 takes 1", "0 hops"},
		{"RemainingLen beyond the option", 4, "31 0e 00 00 0001 0802 800000 00 3F000001", "51: ioam: RemainingLen exceeds the option: it says 8 free bytes, and the option has 4", "0 hops"},
		{"node data of 6 bytes", 4, "31 10 00 00 0001 0800 800000 00 3F000001 0000", "60: ioam: option of the wrong length: 6 bytes of node data, and a multiple of 4 is required", "1 hops"},
		{"node data ends inside a node", 4, "31 16 00 00 0001 1000 C00000 00 3F000001 00010002 3F000001", "64: ioam: node data list ends inside the data of a node: 4 bytes are left, and a node has 8", "1 hops"},
		{"node data without fields", 4, "31 0e 00 00 0001 0000 000000 00 3F000001", "56: ioam: node data list ends inside the data of a node: 4 bytes of node data, and Trace-Type 000000 has no fields", "0 hops"},
		{"snapshot beyond the option", 4, "31 16 00 00 0001 0000 000002 00 01000007 AABBCCDD 02000008", "64: ioam: opaque state snapshot exceeds the option: its Length says 8 bytes, and 0 are left", "1 hops"},
		{"undefined bits", 4, "31 0e 00 00 0001 0800 000800 00 FFFFFFFF", "52: ioam: undefined bits are set: 000800 of Trace-Type 000800", "1 hops"},
		{"reserved bits and byte", 4, "31 0e 00 00 0001 0880 800001 05 3F000001", "50: ioam: reserved bits are set: the lowest flag of the trace; 54: ioam: reserved bits are set: the lowest bit of Trace-Type 800001; 55: ioam: reserved bits are set: byte behind Trace-Type is 05", "1 hops"},
		{"loopback", 4, "31 12 00 00 0001 1200 C00000 00 3F000001 00010002", "50: ioam: Loopback flag with another Trace-Type than 800000: it is C00000", "1 hops"},
		{"POT type", 4, "31 06 00 02 0001 07 00", "50: ioam: unknown IOAM POT-Type: 7", "cumulative 0"},
		{"POT flags", 4, "31 16 00 02 0001 00 80 0000000000000001 0000000000000002", "51: ioam: undefined bits are set: Flags are 80", "cumulative 2"},
		{"short POT", 4, "31 0e 00 02 0001 00 00 0000000000000001", "60: ioam: option of the wrong length: a proof of transit option needs 20 bytes, and has 12", "cumulative 0"},
		{"long POT", 4, "31 17 00 02 0001 00 00 0000000000000001 0000000000000002 00", "68: ioam: option of the wrong length: unused bytes behind Cumulative: 1", "cumulative 2"},
		{"DEX of other flags", 4, "11 12 00 04 0001 01 90 800000 00 00000005 00000006", "50: ioam: undefined bits are set: Flags are 01; 51: ioam: undefined bits are set: 10 of Extension-Flags 90", "flow 5, 1 more"},
		{"short DEX", 4, "11 0e 00 04 0001 00 C0 800000 00 00000005", "60: ioam: option of the wrong length: a direct export option of these Extension-Flags needs 16 bytes, and has 12", "flow 5, 0 more"},
		{"long DEX", 4, "11 0e 00 04 0001 00 00 800000 00 00000005", "56: ioam: option of the wrong length: unused bytes behind the last field of the direct export option: 4", "flow 0, 0 more"},
		{"header of an option cut", 4, "31 01 00", "44: ioam: option of the wrong length: Opt Data Len is 1, and IOAM needs at least 2", "nothing"},
	} {
		pkt := raw(c.offset, unhex(t, c.hex)...)
		found, err := ioam.Find(pkt)
		if err != nil || len(found) != 1 {
			t.Errorf("%s: %d options, %v in\n%x", c.name, len(found), err, pkt)
			continue
		}
		body, err := found[0].Decode()
		var all ioam.Problems
		if !errors.As(err, &all) {
			t.Errorf("%s: no problems", c.name)
		}
		var got []string
		for _, e := range all {
			got = append(got, fmt.Sprintf("%d: %v", e.Offset, e.Err))
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, s, c.want)
		}
		if got := readable(body); got != c.read {
			t.Errorf("%s: read %s, want %s", c.name, got, c.read)
		}
	}
}

// Both sequence numbers in one option, which is in a Destination Options header.
func TestProblemsOfE2E(t *testing.T) {
	for _, c := range []struct {
		hex, read string
		want      error
	}{
		{"11 12 00 03 0001 C000 0000000000000001 00000002", "sequence 3", ioam.ErrTwoSequences},
		{"11 0a 00 03 0001 8000 00000001", "sequence 0", ioam.ErrLength},
		{"11 0a 00 03 0001 6000 00000001", "sequence 1", ioam.ErrLength},
		{"11 0e 00 03 0001 4001 00000001 00000009", "sequence 1", ioam.ErrUndefined},
		{"11 0e 00 03 0001 4000 00000001 00000009", "sequence 1", ioam.ErrLength},
	} {
		body, err := ioam.DecodeOption(unhex(t, c.hex))
		if !errors.Is(err, c.want) || readable(body) != c.read {
			t.Errorf("%s: %v, read %s; want %v, %s", c.hex, err, readable(body), c.want, c.read)
		}
	}
}

// Padding of any form before, between and behind options is skipped: Pad1 has no length.
func TestPadding(t *testing.T) {
	trace := unhex(t, "31 0e 00 00 0001 0800 800000 00 3F000001")
	for _, before := range []string{"00 00", "01 00", "00 00 00 00 00 00", "01 04 00000000", "00 01 03 000000", "01 02 0000 00 00"} {
		options := append(unhex(t, before), trace...)
		options = append(append(options, 0, 1, 1, 0), trace...)
		found, err := ioam.Find(raw(2, options...))
		if err != nil || len(found) != 2 {
			t.Errorf("%s: %d options, %v", before, len(found), err)
			continue
		}
		for _, o := range found {
			if body, err := o.Decode(); err != nil || readable(body) != "1 hops" {
				t.Errorf("%s: %v, read %s", before, err, readable(body))
			}
		}
	}
}

// Any option cut anywhere is read or refused, and never beyond its end.
func TestTruncatedAnywhere(t *testing.T) {
	for _, v := range vectors {
		whole := unhex(t, v.hex)
		for n := range whole {
			if _, err := ioam.DecodeOption(whole[:n:n]); !errors.Is(err, ipv6.ErrTruncated) {
				t.Errorf("%s, %d bytes: %v", v.name, n, err)
			}
			short := bytes.Clone(whole[:n:n])
			if n < 2 {
				continue
			}
			short[1] = uint8(n - 2)
			// The list of a trace may be shorter by whole nodes.
			body, err := ioam.DecodeOption(short)
			if trace, ok := body.(*ioam.Trace); ok && (len(whole)-n)%trace.Type.NodeSize(0) == 0 && trace.Remaining <= 2 {
				continue
			}
			if err == nil {
				t.Errorf("%s, Opt Data Len %d: no problem", v.name, n-2)
			}
		}
	}
}

func TestAppendOptionRefuses(t *testing.T) {
	for _, b := range []ioam.Body{&ioam.Trace{Data: make([]byte, 246)}, &ioam.DEX{Undefined: make([]uint32, 62)}} {
		if _, err := ioam.AppendOption(nil, b); !errors.Is(err, ioam.ErrLength) {
			t.Errorf("%v: %v", b.Kind(), err)
		}
	}
	for _, space := range []int{-4, 2, 248} {
		if _, err := ioam.NewTrace(0, 0x800000, space); !errors.Is(err, ioam.ErrRange) {
			t.Errorf("space of %d: %v", space, err)
		}
	}
	if _, err := ioam.NewIncrementalTrace(0, 1<<24, 4); !errors.Is(err, ioam.ErrRange) {
		t.Errorf("25 bits of Trace-Type: %v", err)
	}
	if _, err := ioam.AppendHeader(nil, 17, &ioam.E2E{}, &ioam.POT{}); !errors.Is(err, ioam.ErrPlace) {
		t.Errorf("two headers in one: %v", err)
	}
}

// AppendHeader makes headers with up to eleven options, each of them aligned.
func TestAppendHeader(t *testing.T) {
	var bodies []ioam.Body
	for i := range 11 {
		trace, err := ioam.NewTrace(uint16(i%7), 0x800000, 4*i)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, trace)
	}
	h, err := ioam.AppendHeader(nil, 17, bodies...)
	if err != nil {
		t.Fatal(err)
	}
	pkt := raw(4)
	pkt = append(append(pkt[:ipv6.HeaderSize:ipv6.HeaderSize], h...), udp().Bytes()[ipv6.HeaderSize:]...)
	pkt[4], pkt[5] = uint8((len(pkt)-40)>>8), uint8(len(pkt)-40)
	found, err := ioam.Find(pkt)
	if err != nil || len(found) != len(bodies) {
		t.Fatalf("%d options, %v", len(found), err)
	}
	for i, o := range found {
		body, err := o.Decode()
		if d := cmp.Diff(bodies[i], body, cmp.Comparer(bytes.Equal)); d != "" || err != nil {
			t.Errorf("option %d: %v, %s", i, err, d)
		}
	}
}

// readable is what of a body was read.
func readable(b ioam.Body) string {
	switch b := b.(type) {
	case *ioam.Trace:
		hops, _ := b.Hops()
		return fmt.Sprintf("%d hops", len(hops))
	case *ioam.POT:
		return fmt.Sprintf("cumulative %d", b.Cumulative)
	case *ioam.E2E:
		return fmt.Sprintf("sequence %d", b.Sequence64+uint64(b.Sequence32))
	case *ioam.DEX:
		return fmt.Sprintf("flow %d, %d more", b.FlowID, len(b.Undefined))
	}
	return "nothing"
}

package ioam_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/ioam"
)

var athos = ioam.Node{
	ID: 0xA1, IDWide: 0xA1A2A3A4A5A6A7, Format: ioam.POSIX,
	Namespaces: map[uint16]ioam.Namespace{
		1: {Data: 0xD1, DataWide: 0xD2},
		2: {Data: 0xD1, DataWide: 0xD2, Schema: &ioam.Snapshot{Schema: 0x70, Data: []byte("snap")}},
	},
}

// through is a packet on its way through athos.
func through() ioam.Passage {
	p := ioam.NewPassage(63)
	p.Ingress, p.Egress, p.IngressWide, p.EgressWide = 11, 12, 1111, 1212
	p.Received = time.Unix(1700000000, 123456789)
	p.Delay, p.QueueDepth, p.BufferOccupancy = 5000, 3, 7
	return p
}

// updates are the checks of a transit node and their verdicts, in the order of the
// checks: an option fails the check it is listed for and all later ones that can fail
// with it.
var updates = []struct {
	name     string
	offset   int
	disabled bool // the interface ignores IOAM
	hex      string
	verdict  ioam.Verdict
	want     string // the option afterwards; empty: as before
}{
	{"other option", 4, false, "1E 0e 00 00 0001 0801 800000 00 00000000", ioam.NotTrace, ""},
	{"E2E", 2, false, "11 0a 00 03 0001 4000 00000001", ioam.NotTrace, ""},
	{"misaligned", 2, true, "31 0e 00 00 0009 0007 800000 00 00000000", ioam.Misaligned, ""},
	{"interface ignores IOAM", 4, true, "31 0e 00 00 0009 0007 800000 00 00000000", ioam.InterfaceIgnored, ""},
	{"proof of transit", 4, false, "31 16 00 02 0001 0000 0000000000000001 0000000000000002", ioam.NotTrace, ""},
	{"no kind", 4, false, "31 01 00", ioam.TooShort, ""},
	{"no trace header", 4, false, "31 09 00 00 0001 0800 800000", ioam.TooShort, ""},
	{"RemainingLen beyond the option", 4, false, "31 0e 00 00 0009 0402 800000 00 00000000", ioam.TooShort, ""},
	{"NodeLen 0", 4, false, "31 0e 00 00 0009 0401 800000 00 00000000", ioam.NodeLenWrong, ""},
	{"unknown namespace", 4, false, "31 0e 00 00 0009 0C01 800000 00 00000000", ioam.NamespaceUnknown, ""},
	{"overflow before", 4, false, "31 0e 00 00 0001 0C01 800000 00 00000000", ioam.OverflowBefore, ""},
	{"no space", 4, false, "31 0e 00 00 0001 1001 C00000 00 00000000", ioam.OverflowSet, "31 0e 00 00 0001 1401 C00000 00 00000000"},
	{"no space for the snapshot", 4, false, "31 0e 00 00 0002 0001 000002 00 00000000", ioam.OverflowSet, "31 0e 00 00 0002 0401 000002 00 00000000"},
	{"nothing left", 4, false, "31 0a 00 00 0001 0000 000000 00", ioam.OverflowSet, "31 0a 00 00 0001 0400 000000 00"},
	{"namespace 0", 4, false, "31 0e 00 00 0000 0801 040000 00 00000000", ioam.Filled, "31 0e 00 00 0000 0800 040000 00 FFFFFFFF"},
	{"first node", 4, false, "31 12 00 00 0001 0802 800000 00 00000000 00000000", ioam.Filled, "31 12 00 00 0001 0801 800000 00 00000000 3F0000A1"},
	{"second node", 4, false, "31 12 00 00 0001 0801 800000 00 00000000 400000A0", ioam.Filled, "31 12 00 00 0001 0800 800000 00 3F0000A1 400000A0"},
	{"undefined bits", 4, false, "31 12 00 00 0001 1002 800004 00 00000000 00000000", ioam.Filled, "31 12 00 00 0001 1000 800004 00 3F0000A1 FFFFFFFF"},
	{"reserved bit and byte", 4, false, "31 0e 00 00 0001 0881 800001 05 00000000", ioam.Filled, "31 0e 00 00 0001 0880 800001 05 3F0000A1"},
	{"snapshot", 4, false, "31 12 00 00 0002 0002 000002 00 00000000 00000000", ioam.Filled, "31 12 00 00 0002 0000 000002 00 01000070 736E6170"},
	{"no snapshot", 4, false, "31 12 00 00 0001 0002 000002 00 00000000 00000000", ioam.Filled, "31 12 00 00 0001 0001 000002 00 00000000 00FFFFFF"},
	{
		"every field", 4, false,
		"31 4e 00 00 0002 7811 FFF002 00" + strings.Repeat("00000000", 17), ioam.Filled,
		"31 4e 00 00 0002 7800 FFF002 00" +
			"3F0000A1 000B000C 6553F100 0001E240 00001388 000000D1 00000003 FFFFFFFF" +
			"3FA1A2A3A4A5A6A7 00000457000004BC 00000000000000D2 00000007 01000070 736E6170",
	},
	{"incremental", 4, false, "31 0e 00 01 0001 0802 800000 00 400000A0", ioam.Filled, "31 12 00 01 0001 0801 800000 00 3F0000A1 400000A0"},
	{"incremental, no space", 4, false, "31 0a 00 01 0001 1001 C00000 00", ioam.OverflowSet, "31 0a 00 01 0001 1401 C00000 00"},
}

func TestUpdate(t *testing.T) {
	for _, c := range updates {
		option := unhex(t, c.hex)
		before := bytes.Clone(option)
		passage := through()
		passage.Disabled = c.disabled
		got, v := athos.Update(option, c.offset, passage)
		want := before
		if c.want != "" {
			want = unhex(t, c.want)
		}
		if v != c.verdict || !bytes.Equal(got, want) || !bytes.Equal(option, before) {
			t.Errorf("%s: %v, want %v\n got %x\nwant %x", c.name, v, c.verdict, got, want)
		}
		if drops := v == ioam.Misaligned || v == ioam.TooShort || v == ioam.NodeLenWrong; v.Drops() != drops {
			t.Errorf("%v drops: %v", v, v.Drops())
		}
	}
}

// An incremental trace never exceeds what an IPv6 option holds.
func TestUpdateOfFullIncremental(t *testing.T) {
	trace := &ioam.Trace{Incremental: true, Namespace: 1, Type: 0x800000, NodeLen: 1, Remaining: 127, Data: make([]byte, 240)}
	option, err := ioam.AppendOption(nil, trace)
	if err != nil {
		t.Fatal(err)
	}
	option, first := athos.Update(option, 4, through())
	option, second := athos.Update(option, 4, through())
	if first != ioam.Filled || second != ioam.OverflowSet || len(option) != 256 {
		t.Errorf("%v, %v, %d bytes", first, second, len(option))
	}
}

// A trace that several nodes filled has what each of them knows, and every other byte
// stays; with a checksum complement the sum over the option does, too.
func TestUpdateByAnyNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tt := traceType().Draw(t, "type")
		incremental := rapid.Bool().Draw(t, "incremental")
		space := 4 * rapid.IntRange(0, ioam.MaxTraceSpace/4).Draw(t, "space")
		trace, err := ioam.NewTrace(1, tt, space)
		if incremental {
			trace, err = ioam.NewIncrementalTrace(1, tt, space)
		}
		if err != nil {
			t.Fatal(err)
		}
		option, err := ioam.AppendOption(nil, trace)
		if err != nil {
			t.Fatal(err)
		}
		filled := 0
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			node := athos
			node.ID = uint32(i)
			node.ChecksumNeutral = rapid.Bool().Draw(t, "neutral")
			before := sum(option)
			next, v := node.Update(option, 4, through())
			if v == ioam.Filled {
				filled++
				if node.ChecksumNeutral && tt.Has(ioam.ChecksumComplement) && sum(next) != before {
					t.Fatalf("%x, sum %x, became %x, sum %x", option, before, next, sum(next))
				}
			}
			option = next
		}
		body, err := ioam.DecodeOption(option)
		if err != nil {
			t.Fatalf("%x: %v", option, err)
		}
		hops, err := body.(*ioam.Trace).Hops()
		if err != nil || tt != 0 && len(hops) != filled {
			t.Fatalf("%d hops of %d, %v", len(hops), filled, err)
		}
		for i, h := range hops {
			if tt.Has(ioam.HopLimitNodeID) && h.NodeID != uint32(i) {
				t.Fatalf("hop %d is of node %d", i, h.NodeID)
			}
			if d, ok := h.Delay(); ok != tt.Has(ioam.TransitDelay) || ok && d != 5000 {
				t.Fatalf("hop %d: delay %v, %v", i, d, ok)
			}
		}
	})
}

// sum is the one's complement sum of 16-bit words; 0 is 0.
func sum(b []byte) uint64 {
	s := uint64(0)
	for i, v := range b {
		s += uint64(v) << (8 * (1 - i%2))
	}
	return s % 0xFFFF
}

func TestTimes(t *testing.T) {
	at := time.Date(2026, 11, 22, 19, 0, 0, 123456789, time.UTC)
	for _, c := range []struct {
		format            ioam.TimeFormat
		seconds, fraction uint32
		want              time.Time
	}{
		{ioam.PTP, 1795374000 + 37, 123456789, at},
		{ioam.NTP, 1795374000 + 2208988800, 530242871, at},
		{ioam.POSIX, 1795374000, 123456, at.Truncate(time.Microsecond)},
	} {
		s, f := c.format.Split(at)
		if s != c.seconds || f != c.fraction {
			t.Errorf("%v: %d, %d; want %d, %d", c.format, s, f, c.seconds, c.fraction)
		}
		got, ok := c.format.Join(s, f, at.Add(time.Hour))
		if !ok || !got.Equal(c.want) {
			t.Errorf("%v: %v, %v; want %v", c.format, got, ok, c.want)
		}
		if back, err := ioam.ParseTimeFormat(c.format.String()); back != c.format || err != nil {
			t.Errorf("%v is parsed as %v, %v", c.format, back, err)
		}
	}
	for _, c := range []struct {
		format   ioam.TimeFormat
		fraction uint32
		ok       bool
	}{{ioam.PTP, 999_999_999, true}, {ioam.PTP, 1_000_000_000, false}, {ioam.POSIX, 999_999, true}, {ioam.POSIX, 1_000_000, false}, {ioam.NTP, 1<<32 - 1, true}} {
		if _, ok := c.format.Join(1, c.fraction, at); ok != c.ok {
			t.Errorf("%v, fraction %d: %v", c.format, c.fraction, ok)
		}
	}
	if _, ok := ioam.NTP.Join(1<<32-1, 1<<32-1, at); ok {
		t.Error("a time that is not available was read")
	}
	if _, err := ioam.ParseTimeFormat("unix"); err == nil {
		t.Error("unix is no format")
	}
}

// Any time of three centuries comes back, although 32 bits of seconds wrap.
func TestTimesWrap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 300*365*86400).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		near := at.Add(time.Duration(rapid.Int64Range(-68*365*86400, 68*365*86400).Draw(t, "off")) * time.Second)
		for _, f := range []ioam.TimeFormat{ioam.PTP, ioam.NTP, ioam.POSIX} {
			s, frac := f.Split(at)
			want := at
			if f == ioam.POSIX {
				want = time.Unix(at.Unix(), int64(at.Nanosecond()/1000*1000))
			}
			if got, ok := f.Join(s, frac, near); !ok || !got.Equal(want) {
				t.Fatalf("%v: %v, want %v", f, got, want)
			}
		}
	})
}

func FuzzUpdate(f *testing.F) {
	for _, v := range vectors {
		f.Add(unhex(f, v.hex), 4, uint8(64))
	}
	f.Fuzz(func(t *testing.T, option []byte, offset int, hopLimit uint8) {
		before := bytes.Clone(option)
		node := athos
		node.ChecksumNeutral = hopLimit&1 != 0
		out, v := node.Update(option[:len(option):len(option)], offset, ioam.NewPassage(hopLimit))
		switch {
		case !bytes.Equal(option, before):
			t.Fatal("the input was changed")
		case v != ioam.Filled && v != ioam.OverflowSet && !bytes.Equal(out, before):
			t.Fatalf("%v changed the option", v)
		case len(option) <= 257 && len(out) > 257, v.String() == "":
			t.Fatalf("%v, %d bytes", v, len(out))
		}
	})
}

package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	"github.com/waymark-net/waymark/test/golden"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

// withIOAM puts options into an Ethernet frame, and lets nodes fill them.
func withIOAM(t testing.TB, frame []byte, nodes []ioam.Node, bodies ...ioam.Body) []byte {
	t.Helper()
	pkt := bytes.Clone(frame[etherSize:])
	var err error
	for _, b := range bodies {
		if pkt, err = ioam.Insert(pkt, b); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range nodes {
		found, err := ioam.Find(pkt)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range found {
			p := ioam.NewPassage(uint8(63 - i))
			p.Ingress, p.Egress, p.IngressWide, p.EgressWide = uint16(10*i+1), uint16(10*i+2), uint32(1000*i+1), uint32(1000*i+2)
			p.Received = captureStart.Add(time.Duration(i) * 250 * time.Microsecond)
			p.Delay = time.Duration(i+1) * 20 * time.Microsecond
			p.QueueDepth, p.BufferOccupancy = uint32(i), uint32(100*i)
			option, _ := n.Update(o.Raw, o.Offset, p)
			if len(option) == len(o.Raw) { // the space of incremental traces is made elsewhere
				copy(pkt[o.At:], option)
			}
		}
	}
	return append(frame[:etherSize:etherSize], pkt...)
}

// musketeers are three nodes; the second has a snapshot.
func musketeers() []ioam.Node {
	nodes := make([]ioam.Node, 3)
	for i := range nodes {
		nodes[i] = ioam.Node{
			ID: uint32(i + 1), IDWide: 0xA0000000000000 + uint64(i), Format: ioam.POSIX, ChecksumNeutral: i == 1,
			Namespaces: map[uint16]ioam.Namespace{1: {Data: uint32(i), DataWide: uint64(i) << 40}},
		}
	}
	ns := nodes[1].Namespaces[1]
	ns.Schema = &ioam.Snapshot{Schema: 7, Data: []byte("snap")}
	nodes[1].Namespaces[1] = ns
	return nodes
}

func newTrace(t testing.TB, tt ioam.TraceType, space int) *ioam.Trace {
	t.Helper()
	trace, err := ioam.NewTrace(1, tt, space)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// journey has packets with every kind of option, with and without PDM, and broken ones.
func journey(t testing.TB) *capture {
	t.Helper()
	c := newCapture(t)
	ip := packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	udp := ip.UDP(40000, 4242).Payload(20).Bytes()
	short := ioam.HopLimitNodeID | ioam.InterfaceIDs | ioam.TimestampSeconds | ioam.TimestampFraction | ioam.TransitDelay
	c.add(time.Millisecond, withIOAM(t, udp, musketeers(), newTrace(t, short, 4*short.NodeSize(0))))
	c.add(2*time.Millisecond, withIOAM(t, udp, musketeers(), newTrace(t, ioam.DefinedFields, 180)))
	incremental := newTrace(t, ioam.HopLimitNodeID|ioam.TimestampSeconds, 24)
	incremental.Incremental, incremental.Remaining = true, 2
	incremental.Data = []byte{62, 0, 0, 2, 0x67, 0, 0, 2, 63, 0, 0, 1, 0x67, 0, 0, 1}
	c.add(3*time.Millisecond, withIOAM(t, udp, nil,
		incremental, &ioam.POT{Namespace: 1, PktID: 1, Cumulative: 0x3b94003e15c4a371},
		&ioam.DEX{Namespace: 2, Type: 0x900000, Extension: ioam.DEXFlowID | ioam.DEXSequence, FlowID: 7, Sequence: 9}))
	seconds, fraction := ioam.POSIX.Split(captureStart)
	e2e := &ioam.E2E{Namespace: 1, Type: ioam.E2ESequence64 | ioam.E2ESeconds | ioam.E2EFraction, Sequence64: 258, Seconds: seconds, Fraction: fraction}
	both := marked(t, ip.UDP(40000, 4242).Payload(20), pdm.Option{PSNTP: 5})
	c.add(4*time.Millisecond, withIOAM(t, both, nil, e2e))
	// RemainingLen beyond the option, and a reserved bit.
	wrong := newTrace(t, 0x800001, 8)
	wrong.Remaining = 9
	c.add(5*time.Millisecond, withIOAM(t, udp, nil, wrong))
	// A Hop-by-Hop Options header with an option beyond it.
	c.add(6*time.Millisecond, ip.HopByHop(packet.Option{Type: 0x31, Data: []byte{0, 0, 0, 1}}).UDP(1, 2).Bytes())
	broken := ip.HopByHop(packet.Option{Type: 0x1E, Data: make([]byte, 4)}).UDP(1, 2).Bytes()
	broken[etherSize+ipv6.HeaderSize+3] = 200
	c.add(7*time.Millisecond, broken)
	c.add(8*time.Millisecond, udp)
	return c
}

func TestDecodeIOAMGolden(t *testing.T) {
	name := journey(t).file()
	for file, args := range map[string][]string{
		"decode_ioam.txt":   nil,
		"decode_ioam.json":  {"-o", "json"},
		"decode_ioam.jsonl": {"-o", "jsonl", "--show", "ioam"},
		"decode_ioam.csv":   {"-o", "csv", "--show", "ioam"},
	} {
		t.Run(file, func(t *testing.T) {
			code, stdout, stderr := runDecode(nil, append(args, name)...)
			if code != command.ExitOK || stderr != "" {
				t.Fatalf("exit %d, stderr %q", code, stderr)
			}
			golden.Check(t, "testdata/"+file, stdout)
		})
	}
}

// What is shown is what was chosen.
func TestDecodeShowsIOAM(t *testing.T) {
	name := journey(t).file()
	for args, want := range map[string]string{
		"-o csv":                        "4 7", // with PDM or malformed
		"-o csv --show ioam":            "1 1 1 2 2 3 3 3 3 4 5 6 7",
		"-o jsonl --show ioam":          "1 2 3 4 5 6 7",
		"-o jsonl":                      "1 2 3 4 5 6 7",
		"-o jsonl --show packets,flows": "4 7",
		"-o jsonl --show flows":         "",
	} {
		code, stdout, stderr := runDecode(nil, append(strings.Fields(args), name)...)
		if code != command.ExitOK {
			t.Fatal(stderr)
		}
		var frames []string
		if strings.Contains(args, "csv") {
			for _, row := range readCSV(t, stdout) {
				frames = append(frames, row["frame"])
			}
		} else {
			for line := range strings.Lines(stdout) {
				var row struct{ Frame int }
				if err := json.Unmarshal([]byte(line), &row); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				if row.Frame != 0 {
					frames = append(frames, strconv.Itoa(row.Frame))
				}
			}
		}
		if got := strings.Join(frames, " "); got != want {
			t.Errorf("%s: frames %s, want %s", args, got, want)
		}
	}
}

// allTraces has a pre-allocated and an incremental trace of every Trace-Type, filled by
// two nodes; of every third the second knows nothing but the hop limit.
func allTraces(t *testing.T) (c *capture, types []ioam.TraceType) {
	t.Helper()
	c = newCapture(t)
	nodes := musketeers()
	for i := range 1 << 13 {
		tt := ioam.TraceType(i>>1)<<12 | ioam.TraceType(i&1)<<1
		for _, incremental := range []bool{false, true} {
			trace := newTrace(t, tt, tt.NodeSize(0)+tt.NodeSize(4)+4*(i%3))
			if trace.Incremental = incremental; incremental {
				// Just enough: tshark looks for free space in incremental traces, too.
				trace.Data, trace.Remaining = nil, trace.Remaining-uint8(i%3)
			}
			option, err := ioam.AppendOption(nil, trace)
			if err != nil {
				t.Fatal(err)
			}
			p := ioam.NewPassage(uint8(i))
			for j := range 2 {
				if j == 0 || i%3 != 0 {
					p.Ingress, p.Egress, p.IngressWide, p.EgressWide = uint16(i), uint16(j), uint32(i)<<8, uint32(j)<<8
					p.Received, p.Delay = captureStart.Add(time.Duration(i)*time.Microsecond), time.Duration(i)
					p.QueueDepth, p.BufferOccupancy = uint32(j), uint32(i)
				}
				option, _ = nodes[j].Update(option, 4, p)
				p = ioam.NewPassage(uint8(i) - 1)
			}
			body, err := ioam.DecodeOption(option)
			if err != nil {
				t.Fatal(err)
			}
			frame := packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(40000, 4242).Payload(8).Bytes()
			c.add(time.Duration(i)*time.Microsecond, withIOAM(t, frame, nil, body))
			types = append(types, tt)
		}
	}
	return c, types
}

// tshark reads the same fields from every trace of every Trace-Type, and finds nothing
// wrong with them.
func TestDecodeIOAMAgreesWithTshark(t *testing.T) {
	c, types := allTraces(t)
	name := c.file()
	code, stdout, errs := runDecode(nil, "-o", "csv", "--show", "ioam", name)
	if code != command.ExitOK {
		t.Fatal(errs)
	}
	if n := ioamtest.AgreesWithTshark(t, name, readCSV(t, stdout)); n != len(types) {
		t.Fatalf("%d packets, and %d read by tshark", len(types), n)
	}
}

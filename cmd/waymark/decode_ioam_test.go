package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
			if code != exitOK || stderr != "" {
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
		if code != exitOK {
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

// sharks are the fields of tshark that agree with columns of decode, per option and per
// hop. A field that stands for two columns has the short one first.
var sharks = struct{ options, hops []shark }{
	[]shark{
		{"ns", []string{"namespace"}, 10, 0},
		{"nodelen", []string{"node_len"}, 10, 0},
		{"remlen", []string{"remaining_len"}, 10, 0},
		{"type", []string{"trace_type"}, 16, 0},
	},
	[]shark{
		{"node.hlim", []string{"hop_limit", "hop_limit_wide"}, 10, 0},
		{"node.id", []string{"node_id"}, 10, ioam.Unavailable24},
		{"node.iif", []string{"ingress"}, 10, ioam.Unavailable16},
		{"node.eif", []string{"egress"}, 10, ioam.Unavailable16},
		{"node.tss", []string{"seconds"}, 10, ioam.Unavailable32},
		{"node.tsf", []string{"fraction"}, 10, ioam.Unavailable32},
		{"node.trdelay", []string{"transit_delay_ns"}, 10, ioam.Unavailable32},
		{"node.nsdata", []string{"namespace_data"}, 16, 0},
		{"node.qdepth", []string{"queue_depth"}, 10, ioam.Unavailable32},
		{"node.csum", []string{"checksum_complement"}, 16, ioam.Unavailable32},
		{"node.id_wide", []string{"node_id_wide"}, 16, ioam.Unavailable56},
		{"node.iif_wide", []string{"ingress_wide"}, 10, ioam.Unavailable32},
		{"node.eif_wide", []string{"egress_wide"}, 10, ioam.Unavailable32},
		{"node.nsdata_wide", []string{"namespace_data_wide"}, 16, 0},
		{"node.bufoccup", []string{"buffer_occupancy"}, 10, ioam.Unavailable32},
		{"node.oss.scid", []string{"schema"}, 10, ioam.NoSchema},
		{"node.oss.data", []string{"snapshot"}, 16, 0},
	},
}

type shark struct {
	theirs      string
	ours        []string
	base        int    // of our numbers
	unavailable uint64 // we show nothing
}

// values are what decode shows of a packet for a field, as numbers in the order of the
// wire, on which the newest hop is first.
func (s shark) values(t *testing.T, rows []map[string]string) (all []uint64) {
	t.Helper()
	tt, _ := strconv.ParseUint(rows[0]["trace_type"], 16, 32)
	for _, row := range slices.Backward(rows) {
		for _, name := range s.ours {
			v := row[name]
			switch field := fieldOf[name]; {
			case field != 0 && (!ioam.TraceType(tt).Has(field) || row["hop"] == ""):
				continue
			case v == "" && name == "snapshot":
				continue
			case v == "":
				all = append(all, s.unavailable)
				continue
			}
			n, err := strconv.ParseUint(v, s.base, 64)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
	}
	return all
}

// fieldOf says where a column may have a value.
var fieldOf = map[string]ioam.TraceType{
	"hop_limit": ioam.HopLimitNodeID, "node_id": ioam.HopLimitNodeID, "ingress": ioam.InterfaceIDs, "egress": ioam.InterfaceIDs,
	"seconds": ioam.TimestampSeconds, "fraction": ioam.TimestampFraction, "transit_delay_ns": ioam.TransitDelay,
	"namespace_data": ioam.NamespaceData, "queue_depth": ioam.QueueDepth, "checksum_complement": ioam.ChecksumComplement,
	"hop_limit_wide": ioam.HopLimitNodeIDWide, "node_id_wide": ioam.HopLimitNodeIDWide,
	"ingress_wide": ioam.InterfaceIDsWide, "egress_wide": ioam.InterfaceIDsWide, "namespace_data_wide": ioam.NamespaceDataWide,
	"buffer_occupancy": ioam.BufferOccupancy, "schema": ioam.OpaqueStateSnapshot, "snapshot": ioam.OpaqueStateSnapshot,
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
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skipf("needs tshark: %v", err)
	}
	c, types := allTraces(t)
	name := c.file()
	all := slices.Concat(sharks.options, sharks.hops)
	args := []string{"-n", "-r", name, "-T", "fields", "-e", "frame.number", "-e", "_ws.expert.message"}
	for _, s := range all {
		args = append(args, "-e", "ipv6.opt.ioam.trace."+s.theirs)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(tshark, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, stderr.String())
	}
	code, stdout, errs := runDecode(nil, "-o", "csv", "--show", "ioam", name)
	if code != exitOK {
		t.Fatal(errs)
	}
	packets := map[string][]map[string]string{}
	for _, row := range readCSV(t, stdout) {
		if row["problems"] != "" || row["error"] != "" {
			t.Fatalf("frame %s: %s %s", row["frame"], row["problems"], row["error"])
		}
		packets[row["frame"]] = append(packets[row["frame"]], row)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(packets) != len(types) || len(lines) != len(types) {
		t.Fatalf("%d packets, %d decoded, %d read by tshark", len(types), len(packets), len(lines))
	}
	for i, line := range lines {
		values := strings.Split(line, "\t")
		// tshark takes NodeLen 0 for wrong and reads no further, also where the snapshot is
		// the only field.
		if types[i].NodeLen() == 0 {
			continue
		}
		if values[1] != "" {
			t.Fatalf("frame %s, Trace-Type %v: tshark says %q", values[0], types[i], values[1])
		}
		rows := packets[values[0]]
		for j, s := range all {
			if j < len(sharks.options) {
				rows = rows[:1]
			} else {
				rows = packets[values[0]]
			}
			want := s.values(t, rows)
			if got := sharkValues(t, s, values[j+2]); !slices.Equal(got, want) {
				t.Fatalf("frame %s, Trace-Type %v: %s is %v, and tshark reads %v", values[0], types[i], s.ours, want, got)
			}
		}
	}
}

// sharkValues are the numbers of a field of tshark.
func sharkValues(t *testing.T, s shark, text string) (all []uint64) {
	t.Helper()
	if text == "" {
		return nil
	}
	for v := range strings.SplitSeq(text, ",") {
		base := 0
		if s.theirs == "node.oss.data" {
			base = 16
		}
		n, err := strconv.ParseUint(v, base, 64)
		if err != nil {
			t.Fatalf("%s: %v", s.theirs, err)
		}
		all = append(all, n)
	}
	return all
}

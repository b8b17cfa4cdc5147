package ioamtest

import (
	"bytes"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/wire/ioam"
)

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
func (s shark) values(t testing.TB, rows []map[string]string) (all []uint64) {
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

// AgreesWithTshark compares what tshark reads of the traces in a capture with the rows of waymark
// decode -o csv, field by field, and returns how many packets were compared. tshark must find nothing
// wrong, but for the NodeLen of traces in whose Trace-Type no bit or only the snapshot's is set.
func AgreesWithTshark(t testing.TB, capture string, rows []map[string]string) int {
	t.Helper()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skipf("needs tshark: %v", err)
	}
	packets := map[string][]map[string]string{}
	for _, row := range rows {
		if row["problems"] != "" || row["error"] != "" {
			t.Fatalf("frame %s: %s %s", row["frame"], row["problems"], row["error"])
		}
		packets[row["frame"]] = append(packets[row["frame"]], row)
	}
	all := slices.Concat(sharks.options, sharks.hops)
	args := []string{"-n", "-r", capture, "-Y", "ipv6.opt.ioam.trace.ns", "-T", "fields", "-e", "frame.number", "-e", "_ws.expert.message"}
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
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(packets) != len(lines) {
		t.Fatalf("%d packets decoded, %d read by tshark", len(packets), len(lines))
	}
	for _, line := range lines {
		values := strings.Split(line, "\t")
		rows := packets[values[0]]
		if len(rows) == 0 {
			t.Fatalf("frame %s was not decoded", values[0])
		}
		tt, _ := strconv.ParseUint(rows[0]["trace_type"], 16, 32)
		// tshark takes NodeLen 0 for wrong and reads no further.
		if ioam.TraceType(tt).NodeLen() == 0 {
			continue
		}
		// The port of a client may be one that traceroute uses, too.
		if values[1] != "" && !strings.HasPrefix(values[1], "Possible traceroute") {
			t.Fatalf("frame %s, Trace-Type %06X: tshark says %q", values[0], tt, values[1])
		}
		for j, s := range all {
			of := rows
			if j < len(sharks.options) {
				of = rows[:1]
			}
			want := s.values(t, of)
			if got := sharkValues(t, s, values[j+2]); !slices.Equal(got, want) {
				t.Fatalf("frame %s, Trace-Type %06X: %s is %v, and tshark reads %v", values[0], tt, s.ours, want, got)
			}
		}
	}
	return len(lines)
}

// sharkValues are the numbers of a field of tshark.
func sharkValues(t testing.TB, s shark, text string) (all []uint64) {
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

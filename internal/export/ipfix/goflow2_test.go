package ipfix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// goflow2Own are elements for which goflow2 has no place of its own, and the
// names that we give them there. Those of a half also come with a reverse.
var goflow2Own = []struct {
	element, name string
	half          bool
}{
	{"flowDirection", "direction", false},
	{"biflowDirection", "biflow", false},
	{"ipVersion", "family", false},
	{"dot1qCustomerVlanId", "inner_vlan", false},
	{"ingressVRFID", "vrf_in", false},
	{"egressVRFID", "vrf_out", false},
	{"layer2SegmentId", "segment", false},
	{"waymarkTunnelType", "tunnel", false},
	{"waymarkTunnelKey", "vni", false},
	{"waymarkICMPIdentifier", "identifier", false},
	{"waymarkUnattributed", "unattributed", false},
	{"waymarkInitiator", "initiator", false},
	{"waymarkInitiatorEvidence", "initiator_by", false},
	{"octetDeltaCount", "bytes", true},
	{"packetDeltaCount", "packets", true},
	{"layer2OctetDeltaCount", "wire_bytes", true},
	{"transportOctetDeltaCount", "payload_bytes", true},
	{"flowStartMilliseconds", "first_ms", true},
	{"flowEndMilliseconds", "last_ms", true},
	{"flowStartNanoseconds", "first", true},
	{"flowEndNanoseconds", "last", true},
	{"tcpControlBits", "tcp_flags", true},
	{"ipClassOfService", "tos", true},
	{"minimumTTL", "ttl_min", true},
	{"maximumTTL", "ttl_max", true},
	{"flowEndReason", "end_reason", true},
	{"flowLabelIPv6", "flow_label", true},
	{"waymarkFragmentDeltaCount", "fragments", true},
	{"waymarkCEPacketDeltaCount", "ce_packets", true},
	{"waymarkResponderRTTNanoseconds", "responder_ns", true},
	{"waymarkInitiatorRTTNanoseconds", "initiator_ns", true},
	{"icmpTypeCodeIPv4", "icmp4", true},
	{"icmpTypeCodeIPv6", "icmp6", true},
	{"droppedPacketDeltaCount", "dropped", false},
	{"droppedOctetDeltaCount", "dropped_bytes", false},
	{"waymarkDropVerdict", "drop_verdict", false},
	{"waymarkDropRule", "drop_rule", false},
	{"waymarkPDMSentDeltaCount", "pdm.sent", false},
	{"waymarkPDMReceivedDeltaCount", "pdm.received", false},
	{"waymarkPDMLostDeltaCount", "pdm.lost", false},
	{"waymarkPDMReorderedDeltaCount", "pdm.reordered", false},
	{"waymarkPDMDuplicateDeltaCount", "pdm.duplicates", false},
	{"waymarkPDMSuspiciousDeltaCount", "pdm.suspicious", false},
	{"waymarkPDMDiscardedDeltaCount", "pdm.discarded", false},
	{"waymarkPDMServerDelayDeltaCount", "pdm.server.count", false},
	{"waymarkPDMServerDelaySumNanoseconds", "pdm.server.sum_ns", false},
	{"waymarkPDMServerDelayMinNanoseconds", "pdm.server.min_ns", false},
	{"waymarkPDMServerDelayMaxNanoseconds", "pdm.server.max_ns", false},
	{"waymarkPDMServerDelayMedianNanoseconds", "pdm.server.p50_ns", false},
	{"waymarkPDMServerDelayP99Nanoseconds", "pdm.server.p99_ns", false},
	{"waymarkPDMNetworkDelayDeltaCount", "pdm.network.count", false},
	{"waymarkPDMNetworkDelaySumNanoseconds", "pdm.network.sum_ns", false},
	{"waymarkPDMNetworkDelayMinNanoseconds", "pdm.network.min_ns", false},
	{"waymarkPDMNetworkDelayMaxNanoseconds", "pdm.network.max_ns", false},
	{"waymarkPDMNetworkDelayMedianNanoseconds", "pdm.network.p50_ns", false},
	{"waymarkPDMNetworkDelayP99Nanoseconds", "pdm.network.p99_ns", false},
	{"waymarkIOAMPathId", "ioam.path", false},
	{"waymarkIOAMNodes", "ioam.nodes", false},
	{"waymarkIOAMNamespace", "ioam.namespace", false},
	{"waymarkIOAMHopCount", "ioam.hops", false},
	{"waymarkIOAMPacketDeltaCount", "ioam.packets", false},
	{"waymarkIOAMPathChangeDeltaCount", "ioam.changes", false},
	{"waymarkIOAMReceivedDeltaCount", "ioam.received", false},
	{"waymarkIOAMLostDeltaCount", "ioam.lost", false},
	{"waymarkIOAMReorderedDeltaCount", "ioam.reordered", false},
	{"waymarkIOAMDuplicateDeltaCount", "ioam.duplicates", false},
	{"waymarkIOAMPathDelayDeltaCount", "ioam.delay.count", false},
	{"waymarkIOAMPathDelaySumNanoseconds", "ioam.delay.sum_ns", false},
	{"waymarkIOAMPathDelayMinNanoseconds", "ioam.delay.min_ns", false},
	{"waymarkIOAMPathDelayMaxNanoseconds", "ioam.delay.max_ns", false},
	{"waymarkIOAMRelative", "ioam.relative", false},
}

// goflow2Mapping is a configuration that shows everything: goflow2's own reading
// where it has one, and the elements above as x_NAME and r_NAME (reverse).
func goflow2Mapping() string {
	fields := []string{
		"sequence_num", "sampling_rate", "observation_domain_id", "time_flow_start_ns", "time_flow_end_ns", "bytes", "packets",
		"src_addr", "dst_addr", "etype", "proto", "src_port", "dst_port", "in_if", "out_if", "src_vlan", "ip_tos", "ip_ttl",
		"tcp_flags", "icmp_type", "icmp_code", "ipv6_flow_label",
	}
	var protobuf, mapping []string
	add := func(name string, id uint16, pen uint32) {
		fields = append(fields, name)
		kind := "varint"
		if strings.HasPrefix(name, "x_ioam.path") || strings.HasPrefix(name, "x_ioam.nodes") {
			kind = "string"
		}
		protobuf = append(protobuf, fmt.Sprintf("    - {name: %s, index: %d, type: %s}", name, 1000+len(fields), kind))
		mapping = append(mapping, fmt.Sprintf("    - {field: %d, penprovided: %t, pen: %d, destination: %s}", id, pen != 0, pen, name))
	}
	for _, o := range goflow2Own {
		e := element(o.element)
		pen, reverse, reverseID := uint32(0), uint32(reversePEN), e.ID
		if e.Own {
			pen, reverse, reverseID = DocumentationPEN, DocumentationPEN, e.ID|reverseBit
		}
		add("x_"+o.name, e.ID, pen)
		if o.half {
			add("r_"+o.name, reverseID, reverse)
		}
	}
	var render []string
	for _, f := range []string{"time_flow_start_ns", "time_flow_end_ns", "proto", "etype"} {
		render = append(render, "    "+f+": none")
	}
	return "formatter:\n  fields: [" + strings.Join(fields, ", ") + "]\n  protobuf:\n" + strings.Join(protobuf, "\n") +
		"\n  render:\n" + strings.Join(render, "\n") + "\nipfix:\n  mapping:\n" + strings.Join(mapping, "\n") + "\n"
}

// goflow2 builds the collector of test/oracles, or finds it built.
func goflow2(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../test/oracles")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "-n", "goflow2")
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stderr = &said
	path, err := cmd.Output()
	if err != nil {
		t.Fatalf("build goflow2: %v: %s\nwithout a network, run this where there is one: cd test/oracles && go mod download", err, said.String())
	}
	return strings.TrimSpace(string(path))
}

// goflow2Says runs the collector and returns its records, by packets.
func goflow2Says(t *testing.T, set func(*Config), o flow.Origin, records []flow.Record, want int) map[string]map[string]any {
	t.Helper()
	byPackets := map[string]map[string]any{}
	for _, v := range goflow2All(t, set, o, records, want) {
		byPackets[fmt.Sprint(v["packets"])] = v
	}
	return byPackets
}

// goflow2All runs the collector and returns its records.
func goflow2All(t *testing.T, set func(*Config), o flow.Origin, records []flow.Record, want int) []map[string]any {
	t.Helper()
	binary := goflow2(t)
	ns, dir := labtest.UpHost(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mapping.yaml"), []byte(goflow2Mapping()), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	said, stop := startIn(t, ns, dir, binary, "-listen", "netflow://127.0.0.1:4739", "-addr", "127.0.0.1:8080",
		"-mapping", "mapping.yaml", "-format", "json", "-transport", "file", "-transport.file", out)
	e := newExporter(t, set)
	e.origin, e.now = o, time.Now
	exportIn(t, ns, e, records)

	var all []map[string]any
	await.Success(t, func() error {
		text, err := os.ReadFile(out)
		if err != nil {
			return err
		}
		// Its workers write records and line ends each for themselves.
		all = nil
		for d := json.NewDecoder(bytes.NewReader(text)); ; {
			d.UseNumber()
			var v map[string]any
			if err = d.Decode(&v); err != nil {
				break
			}
			all = append(all, v)
		}
		if len(all) < want || err != io.EOF {
			return fmt.Errorf("goflow2 has %d records, want %d: %v: %s", len(all), want, err, said())
		}
		return nil
	})
	if log := stop(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Errorf("goflow2 complains: %s", log)
	}
	if len(all) != want {
		t.Errorf("goflow2 has %d records, want %d", len(all), want)
	}
	return all
}

const goflow2Must = `direction family proto src sport dst dport vlan tos tcp_flags packets bytes wire_bytes first last end_reason
	unattributed initiator initiator_by payload_bytes ttl_min ttl_max flow_label inner_vlan fragments ce_packets tunnel vni icmp_type icmp_code sampling
	rtt.responder_ns rtt.initiator_ns drops.packets drops.bytes drops.verdict drops.rule pdm.sent pdm.received pdm.lost pdm.reordered pdm.duplicates pdm.suspicious pdm.discarded
	pdm.server.count pdm.server.sum_ns pdm.server.min_ns pdm.server.max_ns pdm.server.p50_ns pdm.server.p99_ns
	pdm.network.count pdm.network.sum_ns pdm.network.min_ns pdm.network.max_ns pdm.network.p50_ns pdm.network.p99_ns`

// own reads a mapped element; one that a template lacks is 0.
func own(v map[string]any, name string) string {
	if s, ok := v[name]; ok {
		return fmt.Sprint(s)
	}
	return "0"
}

func unixNano(s string) string {
	var ns int64
	fmt.Sscan(s, &ns)
	return timeText(time.Unix(0, ns))
}

func sum(a, b any) string {
	var x, y uint64
	fmt.Sscan(fmt.Sprint(a), &x)
	fmt.Sscan(fmt.Sprint(b), &y)
	return fmt.Sprint(x + y)
}

// goflow2Flow reads a record: what goflow2 knows by itself, else mapped elements.
func goflow2Flow(v map[string]any) said {
	get := func(name string) string { return fmt.Sprint(v[name]) }
	s := said{
		"direction": enum(fieldValues("direction"), own(v, "x_direction")), "family": own(v, "x_family"), "proto": get("proto"),
		"src": get("src_addr"), "dst": get("dst_addr"), "sport": sum(v["src_port"], own(v, "x_identifier")), "dport": get("dst_port"),
		"vlan": get("src_vlan"), "tos": get("ip_tos"), "tcp_flags": get("tcp_flags"), "packets": get("packets"), "bytes": get("bytes"),
		"wire_bytes": own(v, "x_wire_bytes"), "first": unixNano(get("time_flow_start_ns")), "last": unixNano(get("time_flow_end_ns")),
		"end_reason": enum(fieldValues("end_reason"), own(v, "x_end_reason")), "payload_bytes": own(v, "x_payload_bytes"),
		"unattributed": map[string]string{"0": "false", "1": "true"}[own(v, "x_unattributed")],
		"initiator":    enumOrNone("initiator", own(v, "x_initiator")), "initiator_by": enumOrNone("initiator_by", own(v, "x_initiator_by")),
		"ttl_min": get("ip_ttl"), "ttl_max": own(v, "x_ttl_max"), "flow_label": get("ipv6_flow_label"),
		"inner_vlan": own(v, "x_inner_vlan"), "fragments": own(v, "x_fragments"), "ce_packets": own(v, "x_ce_packets"),
		"tunnel": enum(fieldValues("tunnel"), own(v, "x_tunnel")), "vni": own(v, "x_vni"),
		"icmp_type": get("icmp_type"), "icmp_code": get("icmp_code"), "sampling": get("sampling_rate"),
		"drops.packets": own(v, "x_dropped"), "drops.bytes": own(v, "x_dropped_bytes"),
		"drops.verdict": enum(fieldValues("drops.verdict"), own(v, "x_drop_verdict")), "drops.rule": own(v, "x_drop_rule"),
		"rtt.responder_ns": own(v, "x_responder_ns"), "rtt.initiator_ns": own(v, "x_initiator_ns"),
	}
	for _, o := range goflow2Own {
		if strings.HasPrefix(o.name, "pdm.") {
			s[o.name] = own(v, "x_"+o.name)
		}
	}
	return s
}

// goflow2Back reads the reverse half of a conversation.
func goflow2Back(v map[string]any) said {
	r := func(name string) string { return own(v, "r_"+name) }
	ntp := func(name string) string {
		var n uint64
		fmt.Sscan(r(name), &n)
		return timeText(fromNTP(n))
	}
	return said{
		"packets": r("packets"), "bytes": r("bytes"), "wire_bytes": r("wire_bytes"), "payload_bytes": r("payload_bytes"),
		"first": ntp("first"), "last": ntp("last"), "end_reason": enum(fieldValues("end_reason"), r("end_reason")),
		"tos": r("tos"), "tcp_flags": r("tcp_flags"), "ttl_min": r("ttl_min"), "ttl_max": r("ttl_max"), "flow_label": r("flow_label"),
		"fragments": r("fragments"), "ce_packets": r("ce_packets"),
	}
}

func TestGoflow2(t *testing.T) {
	o := flow.Origin{Host: "gw", Sampling: 100}
	records := judged()
	got := goflow2Says(t, nil, o, records, len(records))
	for _, r := range records {
		v := got[fmt.Sprint(r.Packets)]
		if v == nil {
			t.Errorf("record of %d packets is missing", r.Packets)
			continue
		}
		s := goflow2Flow(v)
		if r.Unattributed { // goflow2 shows fields that are not there
			for name, empty := range map[string]string{"src": "", "dst": "", "sport": "0", "dport": "0"} {
				if s[name] != empty {
					t.Errorf("unattributed record has %s %s", name, s[name])
				}
			}
			s["src"], s["dst"], s["sport"], s["dport"] = "", "", "0", "0"
		}
		agree(t, o, r, s, goflow2Must)

		// The interface, the namespace, and the times of collectors that know milliseconds only.
		id := r.IfIndex
		vrf := "0"
		if r.Netns != "" {
			id, vrf = 1<<22+r.IfIndex, "1"
		}
		in, out := id, r.OtherIfIndex
		if r.Direction == flow.Egress {
			in, out = out, in
		}
		if fmt.Sprint(v["in_if"], " ", v["out_if"]) != fmt.Sprint(in, " ", out) ||
			sum(own(v, "x_vrf_in"), own(v, "x_vrf_out")) != vrf {
			t.Errorf("record of %d packets: interfaces %v, %v of %v", r.Packets, v["in_if"], v["out_if"], v["x_vrf_in"])
		}
		if own(v, "x_first_ms") != fmt.Sprint(r.First.UnixMilli()) || own(v, "x_last_ms") != fmt.Sprint(r.Last.UnixMilli()) {
			t.Errorf("record of %d packets: milliseconds %v to %v", r.Packets, v["x_first_ms"], v["x_last_ms"])
		}
		if segment := own(v, "x_segment"); r.Tunnel == flow.TunnelVXLAN && segment != fmt.Sprint(1<<56|uint64(r.VNI)) {
			t.Errorf("layer2SegmentId is %s", segment)
		}
	}
}

func TestGoflow2Biflow(t *testing.T) {
	o := flow.Origin{Host: "gw"}
	records := judged()
	const conversations = 4
	got := goflow2Says(t, func(c *Config) { c.Biflow = true }, o, records, len(records)-conversations)
	for i := range conversations {
		forth, back := records[2*i], records[2*i+1]
		v := got[fmt.Sprint(forth.Packets)]
		if v == nil {
			t.Errorf("conversation of %d packets is missing", forth.Packets)
			continue
		}
		agree(t, o, forth, goflow2Flow(v), goflow2Must)
		agree(t, o, back, goflow2Back(v), "packets")
		if own(v, "x_biflow") != "1" {
			t.Errorf("biflowDirection is %v", v["x_biflow"])
		}
		if back.ICMP() && sum(own(v, "r_icmp4"), own(v, "r_icmp6")) != fmt.Sprint(back.DstPort) {
			t.Errorf("reverse type and code: %v, %v", v["r_icmp4"], v["r_icmp6"])
		}
	}
	for _, r := range records[2*conversations : len(records)-1] {
		agree(t, o, r, goflow2Flow(got[fmt.Sprint(r.Packets)]), goflow2Must)
	}
}

package jsonl

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

var compareRecords = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
}

var tcp = flow.Record{
	Iface: "eth0", Direction: flow.Egress, Family: 4, Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("198.51.100.2"),
	Proto: 6, SrcPort: 40000, DstPort: 443, TOS: 0x28, TCPFlags: 0x11b, Counters: flow.Counters{Packets: 12, Bytes: 4200, PayloadBytes: 3576, WireBytes: 4368},
	TTLMin: 63, TTLMax: 64, First: time.Unix(1700000000, 5), Last: time.Unix(1700000059, 987654321),
	EndReason: flow.EndReasonEndOfFlow, RTT: flow.RTT{Responder: 31_000_000, Initiator: 120_000},
}

// The text of the record, as it is documented.
func TestAppend(t *testing.T) {
	icmpv6 := flow.Record{
		Iface: "wlan0", Netns: "blue", Family: 6, Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2"),
		Proto: 58, SrcPort: 7, DstPort: 128<<8 | 3, VLAN: 100, InnerVLAN: 7, FlowLabel: 0xfffff, Counters: flow.Counters{Packets: 1, Bytes: 64, WireBytes: 86, Fragments: 1, CEPackets: 2}, Tunnel: flow.TunnelVXLAN, VNI: 42, First: time.Unix(0, 0), Last: time.Unix(0, 0),
		EndReason: flow.EndReasonActiveTimeout,
	}
	unattributed := flow.Record{
		Iface: "eth0", Family: 6, Proto: 17, Unattributed: true, Counters: flow.Counters{Packets: 3, Bytes: 300, WireBytes: 342},
		First: time.Unix(0, 0), Last: time.Unix(1, 0), EndReason: flow.EndReasonLackOfResources,
	}
	plain := flow.Record{Family: 6, Unattributed: true, First: time.Unix(0, 0), Last: time.Unix(0, 0)}
	sent, answered := plain, plain
	sent.PDM = &flow.PDM{Sent: 12}
	answered.PDM = &flow.PDM{
		Received: 9, Lost: -2, Reordered: 1, Duplicates: 3, Suspicious: 4, Discarded: 5,
		Server: delays(41*time.Millisecond, 41*time.Millisecond, 90*time.Millisecond), Network: delays(500),
	}
	const before = `{"host":"","iface":"","direction":"ingress","family":6,"proto":0,"vlan":0,"tos":0,"tcp_flags":0,"packets":0,"bytes":0,"wire_bytes":0,"first":"1970-01-01T00:00:00.000000000Z","last":"1970-01-01T00:00:00.000000000Z","end_reason":"none","unattributed":true,`
	for _, tt := range []struct {
		name   string
		origin flow.Origin
		record flow.Record
		want   string
	}{
		{
			"marked and sent",
			flow.Origin{},
			sent,
			before + `"pdm":{"sent":12,"received":0}}`,
		},
		{
			"marked and answered",
			flow.Origin{},
			answered,
			before + `"pdm":{"sent":0,"received":9,"lost":-2,"reordered":1,"duplicates":3,"suspicious":4,"discarded":5,` +
				`"server":{"count":3,"sum_ns":172000000,"min_ns":41000000,"max_ns":90000000,"p50_ns":41466158,"p90_ns":86835555,"p99_ns":86835555,"buckets":[[122,2],[131,1]]},` +
				`"network":{"count":1,"sum_ns":500,"min_ns":500,"max_ns":500,"p50_ns":500,"p90_ns":500,"p99_ns":500,"buckets":[[0,1]]}}}`,
		},
		{
			"TCP over IPv4",
			flow.Origin{Host: "gw", Sampling: 1},
			tcp,
			`{"host":"gw","iface":"eth0","direction":"egress","family":4,"proto":6,"src":"192.0.2.1","sport":40000,"dst":"198.51.100.2","dport":443,"vlan":0,"tos":40,"tcp_flags":283,"packets":12,"bytes":4200,"wire_bytes":4368,"first":"2023-11-14T22:13:20.000000005Z","last":"2023-11-14T22:14:19.987654321Z","end_reason":"end_of_flow","payload_bytes":3576,"ttl_min":63,"ttl_max":64,"rtt":{"responder_ns":31000000,"initiator_ns":120000,"handshake_ns":31120000}}`,
		},
		{
			"ICMPv6 in VXLAN, sampled",
			flow.Origin{Host: "gw", Sampling: 100},
			icmpv6,
			`{"host":"gw","iface":"wlan0","netns":"blue","direction":"ingress","family":6,"proto":58,"src":"2001:db8::1","sport":7,"dst":"2001:db8::2","dport":32771,"vlan":100,"tos":0,"tcp_flags":0,"packets":1,"bytes":64,"wire_bytes":86,"first":"1970-01-01T00:00:00.000000000Z","last":"1970-01-01T00:00:00.000000000Z","end_reason":"active_timeout","fragments":1,"ce_packets":2,"flow_label":1048575,"inner_vlan":7,"tunnel":"vxlan","vni":42,"icmp_type":128,"icmp_code":3,"sampling":100}`,
		},
		{
			"unattributed",
			flow.Origin{Host: "gw"},
			unattributed,
			`{"host":"gw","iface":"eth0","direction":"ingress","family":6,"proto":17,"vlan":0,"tos":0,"tcp_flags":0,"packets":3,"bytes":300,"wire_bytes":342,"first":"1970-01-01T00:00:00.000000000Z","last":"1970-01-01T00:00:01.000000000Z","end_reason":"lack_of_resources","unattributed":true}`,
		},
		{
			"names that need escapes",
			flow.Origin{Host: "a\"b\\c\n"},
			flow.Record{Iface: "é\x01", Family: 4, Unattributed: true},
			`{"host":"a\"b\\c\u000a","iface":"é\u0001","direction":"ingress","family":4,"proto":0,"vlan":0,"tos":0,"tcp_flags":0,"packets":0,"bytes":0,"wire_bytes":0,"first":"0001-01-01T00:00:00.000000000Z","last":"0001-01-01T00:00:00.000000000Z","end_reason":"none","unattributed":true}`,
		},
		{
			"a name that is not UTF-8",
			flow.Origin{},
			flow.Record{Iface: "a\xff", Family: 4, Unattributed: true},
			`{"host":"","iface":"a` + "\ufffd" + `","direction":"ingress","family":4,"proto":0,"vlan":0,"tos":0,"tcp_flags":0,"packets":0,"bytes":0,"wire_bytes":0,"first":"0001-01-01T00:00:00.000000000Z","last":"0001-01-01T00:00:00.000000000Z","end_reason":"none","unattributed":true}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Append(nil, &tt.origin, &tt.record)
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if !json.Valid(got) {
				t.Error("not valid JSON")
			}
		})
	}
}

func delays(all ...time.Duration) flow.Delays {
	var h inband.Histogram
	for _, d := range all {
		h.Add(uint64(d))
	}
	return flow.DelaysOf(&h)
}

func toDuration(ns int64) time.Duration { return time.Duration(ns) }

// record draws any record that the flow table may make.
func record() *rapid.Generator[flow.Record] {
	return rapid.Custom(func(t *rapid.T) flow.Record {
		u64 := rapid.Uint64()
		at := func(name string) time.Time {
			return time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, name), rapid.Int64Range(0, 999_999_999).Draw(t, name)).UTC()
		}
		r := flow.Record{
			Iface:     rapid.StringN(1, 15, -1).Draw(t, "iface"),
			Netns:     rapid.StringN(0, 8, -1).Draw(t, "netns"),
			Direction: flow.Direction(rapid.IntRange(0, 1).Draw(t, "direction")),
			Family:    rapid.SampledFrom([]uint8{4, 6}).Draw(t, "family"), Unattributed: rapid.Bool().Draw(t, "unattributed"),
			Proto: rapid.SampledFrom([]uint8{0, 1, 6, 17, 58, 132, 255}).Draw(t, "proto"),
			VLAN:  rapid.Uint16Range(0, 4095).Draw(t, "vlan"), InnerVLAN: rapid.Uint16Range(0, 4095).Draw(t, "inner vlan"),
			Tunnel: flow.Tunnel(rapid.IntRange(0, 4).Draw(t, "tunnel")), VNI: rapid.Uint32().Draw(t, "vni"),
			TOS: rapid.Uint8().Draw(t, "tos"), TCPFlags: rapid.Uint16().Draw(t, "flags"), FlowLabel: rapid.Uint32Range(0, 1<<20-1).Draw(t, "label"),
			TTLMin: rapid.Uint8().Draw(t, "ttl"), TTLMax: rapid.Uint8().Draw(t, "ttl"),
			Counters:  flow.Counters{Packets: u64.Draw(t, "packets"), Bytes: u64.Draw(t, "bytes"), PayloadBytes: u64.Draw(t, "payload"), WireBytes: u64.Draw(t, "wire"), Fragments: u64.Draw(t, "fragments"), CEPackets: u64.Draw(t, "ce")},
			Initiator: flow.Initiator(rapid.IntRange(0, 2).Draw(t, "initiator")), InitiatorBy: flow.Evidence(rapid.IntRange(0, 4).Draw(t, "evidence")),
			First: at("first"), Last: at("last"), EndReason: flow.EndReason(rapid.IntRange(0, 5).Draw(t, "reason")),
			RTT: flow.RTT{
				Responder: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "rtt")),
				Initiator: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "rtt")),
			},
		}
		if rapid.Bool().Draw(t, "marked") {
			r.PDM = &flow.PDM{
				Sent: u64.Draw(t, "sent"), Received: u64.Draw(t, "received"), Lost: rapid.Int64().Draw(t, "lost"),
				Reordered: u64.Draw(t, "reordered"), Duplicates: u64.Draw(t, "duplicates"),
				Suspicious: u64.Draw(t, "suspicious"), Discarded: u64.Draw(t, "discarded"),
				Server:  delays(rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, 1<<40), toDuration), 0, 5).Draw(t, "server")...),
				Network: delays(rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, 1<<40), toDuration), 0, 5).Draw(t, "network")...),
			}
		}
		if r.Unattributed {
			return r
		}
		addr := func(name string) netip.Addr {
			b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)
			if r.Family == 6 {
				return netip.AddrFrom16([16]byte(b))
			}
			return netip.AddrFrom4([4]byte(b))
		}
		r.Src, r.Dst = addr("src"), addr("dst")
		r.SrcPort, r.DstPort = rapid.Uint16().Draw(t, "sport"), rapid.Uint16().Draw(t, "dport")
		return r
	})
}

func TestDecodeIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := record().Draw(t, "record")
		origin := flow.Origin{Host: rapid.String().Draw(t, "host")}
		if n := rapid.Uint32().Draw(t, "sampling"); n > 1 {
			origin.Sampling = n
		}
		line := Append(nil, &origin, &want)
		if bytes.ContainsAny(line, "\n\r") || !json.Valid(line) {
			t.Fatalf("not one line of JSON: %s", line)
		}
		o, got, err := Decode(line)
		if err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		if o != origin {
			t.Errorf("origin %+v, want %+v", o, origin)
		}
		if diff := cmp.Diff(want, got, compareRecords); diff != "" {
			t.Errorf("%s\n%s", diff, line)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	marked := tcp
	marked.PDM = &flow.PDM{Sent: 1, Lost: 2, Server: delays(1), Network: delays(time.Second)}
	line := string(Append(nil, &flow.Origin{Host: "gw"}, &marked))
	for _, tt := range []struct{ name, old, new, want string }{
		{"no JSON", line, "{", "unexpected end"},
		{"no object", line, "null", "null is no object"},
		{"missing", `"vlan":0,`, "", "vlan is missing"},
		{"attributed without address", `"src":"192.0.2.1",`, "", "src is missing"},
		{"string for number", `"vlan":0`, `"vlan":"0"`, `vlan: "0": want a whole number`},
		{"number for string", `"host":"gw"`, `"host":7`, "host: 7: want a string"},
		{"beyond range", `"vlan":0`, `"vlan":4096`, "up to 4095"},
		{"fraction", `"packets":12`, `"packets":12.5`, "packets: 12.5"},
		{"negative", `"packets":12`, `"packets":-12`, "packets: -12"},
		{"direction", `"egress"`, `"up"`, `direction "up": want one of`},
		{"family", `"family":4`, `"family":5`, "family 5"},
		{"address of the other family", `"192.0.2.1"`, `"2001:db8::1"`, "not both of the family"},
		{"address", `"192.0.2.1"`, `"192.0.2"`, "src:"},
		{"zone", `"192.0.2.1"`, `"fe80::1%eth0"`, "has a zone"},
		{"time", `"2023-11-14T22:13:20.000000005Z"`, `"yesterday"`, "first:"},
		{"inner object", `{"responder_ns":31000000`, `{"responder_ns":-1`, "rtt.responder_ns: -1"},
		{"counter of an inner object", `"pdm":{"sent":1,`, `"pdm":{`, "pdm.sent is missing"},
		{"signed", `"lost":2`, `"lost":2.5`, "pdm.lost: 2.5: want a whole number"},
		{"delays without a count", `"count":1,`, ``, "their count is 0 or missing"},
		{"delays that are counted and not reported", `"sum_ns":1,`, ``, "pdm.server.sum_ns is missing"},
		{"bucket that is not there", `[[0,1]]`, `[[208,1]]`, "[208 1]: want [index, count]"},
		{"empty bucket", `[[0,1]]`, `[[0,0]]`, "[0 0]: want [index, count]"},
		{"buckets out of order", `[[0,1]]`, `[[3,1],[2,1]]`, "[2 1]: want [index, count]"},
		{"bucket of one number", `[[0,1]]`, `[[0]]`, "[0]: want [index, count]"},
		{"buckets that are none", `[[0,1]]`, `{}`, "pdm.server.buckets: json"},
		{"object in an object of wrong type", `"server":{"count":1,"sum_ns":1,"min_ns":1,"max_ns":1,"p50_ns":1,"p90_ns":1,"p99_ns":1,"buckets":[[0,1]]}`, `"server":null`, "pdm.server: null is no object"},
		{"inner object of wrong type", `"rtt":{"responder_ns":31000000,"initiator_ns":120000,"handshake_ns":31120000}`, `"rtt":3`, "rtt:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := strings.Replace(line, tt.old, tt.new, 1)
			if bad == line {
				t.Fatal("the line was not changed")
			}
			_, _, err := Decode([]byte(bad))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %q in it", err, tt.want)
			}
		})
	}
	if _, _, err := Decode([]byte(strings.Replace(line, "{", `{"from_a_later_version":{"a":1},`, 1))); err != nil {
		t.Errorf("an unknown key must be passed over: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Append(nil, &flow.Origin{Host: "gw", Sampling: 3}, &tcp))
	f.Add(Append(nil, &flow.Origin{}, &flow.Record{Unattributed: true, Family: 6, Netns: "n"}))
	marked := tcp
	marked.PDM = &flow.PDM{Lost: -1, Server: delays(1, 1<<30), Network: delays(5)}
	f.Add(Append(nil, &flow.Origin{}, &marked))
	f.Add([]byte(`{"rtt":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		o, r, err := Decode(line)
		if err != nil {
			return
		}
		first := Append(nil, &o, &r)
		o, r, err = Decode(first)
		if err != nil {
			t.Fatalf("what was decoded cannot be decoded again: %v\n%s", err, first)
		}
		if second := Append(nil, &o, &r); !bytes.Equal(first, second) {
			t.Errorf("%s\n%s", first, second)
		}
	})
}

// An independent validator accepts what Append writes and refuses what is wrong.
func TestSchema(t *testing.T) {
	if err := exec.Command("python3", "-c", "import jsonschema").Run(); err != nil {
		t.Skip("python3-jsonschema is not installed: apt-get install python3-jsonschema")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "schema"), Schema(), 0o600); err != nil {
		t.Fatal(err)
	}
	origin := &flow.Origin{Host: "gw", Sampling: 2}
	good := [][]byte{Append(nil, origin, &tcp), Append(nil, origin, &flow.Record{Family: 4, Unattributed: true})}
	marked := tcp
	marked.PDM = &flow.PDM{Server: delays(1)}
	good = append(good, Append(nil, origin, &marked))
	for i := range 50 {
		r := record().Example(i)
		good = append(good, Append(nil, origin, &r))
	}
	line := string(good[0])
	bad := [][]byte{
		[]byte(strings.Replace(line, `"vlan":0`, `"vlan":4096`, 1)),
		[]byte(strings.Replace(line, `"src":"192.0.2.1",`, ``, 1)),
		[]byte(strings.Replace(line, `"egress"`, `"up"`, 1)),
		[]byte(strings.Replace(line, `"initiator_ns":120000`, `"initiator_ns":-1`, 1)),
		bytes.Replace(good[2], []byte("[[0,1]]"), []byte("[[0]]"), 1),
	}
	cmd := exec.Command("python3", "-c", `
import json, sys, jsonschema
schema = json.load(open("schema"))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
for line in sys.stdin:
    print("good" if validator.is_valid(json.loads(line)) else "bad")`)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(bytes.Join(append(good, bad...), []byte("\n")))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := strings.Repeat("good\n", len(good)) + strings.Repeat("bad\n", len(bad))
	if string(out) != want {
		t.Errorf("verdicts are %s, want %s", out, want)
	}
}

func BenchmarkAppend(b *testing.B) {
	origin := &flow.Origin{Host: "gateway"}
	for _, bb := range []struct {
		name   string
		record flow.Record
	}{
		{"IPv4", tcp},
		{"IPv6", func() flow.Record {
			r := tcp
			r.Family, r.Src, r.Dst = 6, netip.MustParseAddr("2001:db8:1:2::abcd"), netip.MustParseAddr("2001:db8::3")
			return r
		}()},
	} {
		b.Run(bb.name, func(b *testing.B) {
			buf := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				buf = Append(buf[:0], origin, &bb.record)
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	line := Append(nil, &flow.Origin{Host: "gateway"}, &tcp)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode(line); err != nil {
			b.Fatal(err)
		}
	}
}

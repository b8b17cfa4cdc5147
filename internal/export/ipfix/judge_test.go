package ipfix

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// The judges are collectors that others wrote. Each runs in a network namespace
// of its own, is sent judged(), and has to find in every record what the JSON
// record says.

// judged are flows in which every field varies. Packets tell them apart; both
// halves of a conversation are neighbours, its initiator first.
func judged() []flow.Record {
	at := time.Now().Add(-time.Minute).UTC()
	v4, v6 := netip.MustParseAddr, netip.MustParseAddr
	tcp := flow.Record{
		Iface: "eth0", IfIndex: 2, Direction: flow.Egress, Family: 4, Proto: 6,
		Src: v4("192.0.2.1"), Dst: v4("198.51.100.254"), SrcPort: 40000, DstPort: 443,
		Initiator: flow.InitiatorSrc, InitiatorBy: flow.EvidenceHandshake,
		TOS: 0xb8, TCPFlags: 0x0d5b, TTLMin: 1, TTLMax: 255, EndReason: flow.EndReasonEndOfFlow,
		Counters: flow.Counters{Packets: 101, Bytes: 1 << 40, WireBytes: 1<<40 + 1414, PayloadBytes: 1<<40 - 4040},
		First:    at.Add(1), Last: at.Add(59_999_999_999),
	}
	udp := flow.Record{
		Iface: "eth1", IfIndex: 3, Direction: flow.Ingress, Family: 6, Proto: 17,
		Src: v6("2001:db8::1"), Dst: v6("2001:db8:ffff::2"), SrcPort: 65535, DstPort: 53, VLAN: 4094,
		Initiator: flow.InitiatorSrc, InitiatorBy: flow.EvidenceFirst,
		TOS: 1, FlowLabel: 0xfffff, TTLMin: 63, TTLMax: 64, EndReason: flow.EndReasonIdleTimeout,
		Counters: flow.Counters{Packets: 103, Bytes: 9000, WireBytes: 9999, PayloadBytes: 8000, Fragments: 5, CEPackets: 6},
		First:    at.Add(333_333_333), Last: at.Add(1_666_666_667),
	}
	udp.Other, udp.OtherIfIndex = "eth0", 2
	ping := tcp
	ping.Proto, ping.SrcPort, ping.DstPort, ping.TCPFlags, ping.Packets = 1, 4711, 8<<8, 0, 105
	ping6 := udp
	ping6.Proto, ping6.SrcPort, ping6.DstPort, ping6.Packets = 58, 0x1234, 128<<8, 107
	unreachable := tcp
	unreachable.Proto, unreachable.SrcPort, unreachable.DstPort, unreachable.TCPFlags, unreachable.Packets = 1, 0, 3<<8|10, 0, 109
	sctp := udp
	sctp.Proto, sctp.SrcPort, sctp.DstPort, sctp.Packets, sctp.EndReason = 132, 2905, 2906, 110, flow.EndReasonForcedEnd
	gre := tcp
	gre.Proto, gre.SrcPort, gre.DstPort, gre.TCPFlags, gre.Packets, gre.EndReason = 47, 0, 0, 0, 111, flow.EndReasonLackOfResources
	inner := tcp
	inner.Iface, inner.Netns, inner.IfIndex, inner.Packets = "veth7", "blue", 2, 112
	inner.VLAN, inner.InnerVLAN, inner.Tunnel, inner.VNI = 100, 200, flow.TunnelVXLAN, 0xfedcba
	inner.Fragments, inner.CEPackets, inner.EndReason = 3, 4, flow.EndReasonActiveTimeout
	inner.RTT = flow.RTT{Responder: 31_415_926, Initiator: 2_718_281}
	inner6 := udp
	inner6.Packets, inner6.Tunnel, inner6.VNI, inner6.Fragments = 113, flow.TunnelGRE, 7, 1<<33
	unattributed := flow.Record{
		Iface: "eth0", IfIndex: 2, Family: 6, Proto: 17, Unattributed: true, EndReason: flow.EndReasonLackOfResources,
		Counters: flow.Counters{Packets: 114, Bytes: 11400, WireBytes: 12996, PayloadBytes: 9000}, First: at, Last: at.Add(time.Second),
	}
	back := func(r flow.Record, dport uint16) flow.Record {
		r.Direction ^= 1
		r.Src, r.Dst, r.Initiator = r.Dst, r.Src, r.Initiator.Opposite()
		if !r.ICMP() {
			r.SrcPort = r.DstPort
		}
		r.DstPort = dport
		r.Packets++
		r.Bytes, r.WireBytes, r.PayloadBytes = r.Bytes/3, r.WireBytes/3, r.PayloadBytes/3
		r.Fragments, r.CEPackets = r.Fragments/2, r.CEPackets*2
		r.TOS, r.TTLMin, r.TTLMax, r.TCPFlags, r.FlowLabel = r.TOS^2, 7, 8, r.TCPFlags&^0x40, r.FlowLabel>>1
		r.First, r.Last, r.EndReason = r.First.Add(12_345_678), r.Last.Add(-87_654_321), flow.EndReasonIdleTimeout
		return r
	}
	marked := udp
	marked.Direction, marked.Proto, marked.DstPort, marked.Packets, marked.TCPFlags = flow.Egress, 6, 443, 116, 0x18
	marked.RTT = inner.RTT
	answered := back(marked, 65535)
	marked.PDM = &flow.PDM{Sent: 116}
	answered.PDM = &flow.PDM{
		Received: 1 << 33, Lost: 7, Reordered: 6, Duplicates: 5, Suspicious: 4, Discarded: 3,
		Server: delays(40*time.Millisecond, 41*time.Millisecond, 90*time.Millisecond), Network: delays(8_200_001, 9_000_003),
	}
	dropped, dropped6 := tcp, udp
	dropped.Packets, dropped.DstPort, dropped.Dropped, dropped.DroppedBytes = 118, 23, 117, 1<<33
	dropped.Drop = &flow.Drop{Verdict: flow.VerdictDrop, Rule: 1<<32 - 1, Text: "drop dst port 23"}
	dropped6.Packets, dropped6.DstPort, dropped6.Dropped, dropped6.DroppedBytes = 119, 54, 119, 4096
	dropped6.Drop = &flow.Drop{Verdict: flow.VerdictLimit, Rule: 7, Text: "limit 1/s"}
	return []flow.Record{
		tcp, back(tcp, 40000), udp, back(udp, 65535), ping, back(ping, 0), ping6, back(ping6, 129<<8),
		unreachable, sctp, gre, inner, inner6, marked, answered, dropped, dropped6, unattributed,
	}
}

func delays(all ...time.Duration) flow.Delays {
	var h inband.Histogram
	for _, d := range all {
		h.Add(uint64(d))
	}
	return flow.DelaysOf(&h)
}

// said is what a judge says of a record, by the names of the JSON record.
type said map[string]string

// reference is the JSON record, with what is absent spelt out.
func reference(t *testing.T, o flow.Origin, r flow.Record) said {
	t.Helper()
	ref := said{}
	for i := range flow.Fields {
		f := &flow.Fields[i]
		ref[f.Name] = map[flow.Kind]string{flow.Number: "0", flow.Signed: "0", flow.Protocol: "0", flow.Bits: "0", flow.Name: "none", flow.Flag: "false"}[f.Kind]
	}
	ref["sampling"] = "1" // collectors get the rate also where it is 1
	var flatten func(prefix string, v map[string]any)
	flatten = func(prefix string, v map[string]any) {
		for key, value := range v {
			if inner, ok := value.(map[string]any); ok {
				flatten(prefix+key+".", inner)
				continue
			}
			ref[prefix+key] = fmt.Sprint(value)
		}
	}
	d := json.NewDecoder(bytes.NewReader(jsonl.Append(nil, &o, &r)))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	flatten("", v)
	return ref
}

// agree compares what a judge says with the JSON record. must are the fields
// that it has to know.
func agree(t *testing.T, o flow.Origin, r flow.Record, got said, must string) {
	t.Helper()
	if got == nil {
		t.Errorf("record of %d packets is missing", r.Packets)
		return
	}
	want := reference(t, o, r)
	for _, name := range strings.Fields(must) {
		if _, known := got[name]; !known {
			t.Errorf("record of %d packets: %s is missing", r.Packets, name)
		}
	}
	for name, value := range got {
		w, known := want[name]
		if !known {
			t.Fatalf("no field %s in the JSON record", name)
		}
		if value != w {
			t.Errorf("record of %d packets: %s is %s, want %s", r.Packets, name, value, w)
		}
	}
}

// start runs a program in a namespace; stop ends it and returns what it said.
func startIn(t *testing.T, ns *lab.Host, dir string, command ...string) (said func() string, stop func() string) {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), "said")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), "TZ=UTC")
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	said = func() string {
		b, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	ended := false
	stop = func() string {
		if !ended {
			ended = true
			cmd.Process.Signal(unix.SIGINT)
			cmd.Wait()
		}
		return said()
	}
	t.Cleanup(func() { stop() })
	return said, stop
}

// exportIn sends records to a collector in a namespace, which may be starting.
func exportIn(t *testing.T, ns *lab.Host, e *Exporter, records []flow.Record) {
	t.Helper()
	await.Success(t, func() error {
		return ns.Do(func() error {
			_, err := e.Export(context.Background(), nil)
			return err
		})
	})
	if n, err := e.Export(context.Background(), records); n != len(records) || err != nil {
		t.Fatalf("exported %d of %d: %v", n, len(records), err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// need skips the test when a judge is not there.
func need(t *testing.T, program, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed: apt-get install %s", program, pkg)
	}
}

// enum makes the number of a Name its text.
func enum(names []string, number string) string {
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(names) {
		return "number " + number
	}
	return names[n]
}

// enumOrNone is enum of a field whose values count from 1.
func enumOrNone(field, number string) string {
	return enum(append([]string{"none"}, flow.FieldNamed(field).Choices()...), number)
}

func fieldValues(name string) []string { return flow.FieldNamed(name).Values }

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000Z") }

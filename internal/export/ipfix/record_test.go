package ipfix

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
	"github.com/waymark-net/waymark/internal/pipeline"
)

// memory is a session that keeps messages; everything in front of it is as with
// a real collector.
type memory struct {
	bytes.Buffer
	largest, messages int
}

func (m *memory) send(_ context.Context, message []byte, _ int) error {
	m.largest = max(m.largest, len(message))
	m.messages++
	m.Write(message)
	return nil
}
func (m *memory) confirm() error      { return nil }
func (m *memory) interrupt()          {}
func (m *memory) lost() (int, string) { return 0, "" }
func (m *memory) close() error        { return nil }

var (
	origin = flow.Origin{Host: "gw"}
	start  = time.Unix(1700000000, 0)
)

func newExporter(t testing.TB, set func(*Config)) *Exporter {
	t.Helper()
	cfg := Default()
	if set != nil {
		set(&cfg)
	}
	e, err := New(cfg, origin, func() time.Time { return start })
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var compareRecords = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
}

// drawRecord draws any record that the flow table may make.
func drawRecord(t *rapid.T) flow.Record {
	counter := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64())
	at := func() time.Time {
		return time.Unix(rapid.Int64Range(0, 2085978495).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	}
	r := flow.Record{
		IfIndex:      rapid.Uint32Range(1, 4).Draw(t, "ifindex"),
		Netns:        rapid.SampledFrom([]string{"", "", "blue", "red"}).Draw(t, "netns"),
		Direction:    flow.Direction(rapid.IntRange(0, 1).Draw(t, "direction")),
		Family:       rapid.SampledFrom([]uint8{4, 6}).Draw(t, "family"),
		Unattributed: rapid.IntRange(0, 9).Draw(t, "unattributed") == 0,
		Proto:        rapid.SampledFrom([]uint8{0, 1, 6, 17, 58, 132, 255}).Draw(t, "proto"),
		VLAN:         rapid.Uint16Range(0, 4095).Draw(t, "vlan"),
		TOS:          rapid.Uint8().Draw(t, "tos"), TCPFlags: rapid.Uint16().Draw(t, "flags"),
		TTLMin: rapid.Uint8().Draw(t, "ttl"), TTLMax: rapid.Uint8().Draw(t, "ttl"),
		Counters: flow.Counters{Packets: counter.Draw(t, "packets"), Bytes: counter.Draw(t, "bytes"), PayloadBytes: counter.Draw(t, "payload"), WireBytes: counter.Draw(t, "wire")},
		First:    at(), Last: at(), EndReason: flow.EndReason(rapid.IntRange(0, 5).Draw(t, "reason")),
	}
	r.Iface = r.Netns + "eth" + string(rune('0'+r.IfIndex))
	if rapid.IntRange(0, 3).Draw(t, "extra") == 0 {
		r.InnerVLAN = rapid.Uint16Range(0, 4095).Draw(t, "inner vlan")
		r.Tunnel, r.VNI = flow.Tunnel(rapid.IntRange(0, 4).Draw(t, "tunnel")), rapid.Uint32().Draw(t, "vni")
		r.Fragments, r.CEPackets = counter.Draw(t, "fragments"), counter.Draw(t, "ce")
		r.RTT.Responder = time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "rtt"))
		r.RTT.Initiator = time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "rtt"))
	}
	if r.Unattributed {
		return r
	}
	addr := func() netip.Addr {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")
		if r.Family == 6 {
			return netip.AddrFrom16([16]byte(b))
		}
		return netip.AddrFrom4([4]byte(b))
	}
	r.Src, r.Dst = addr(), addr()
	r.SrcPort, r.DstPort = rapid.Uint16().Draw(t, "sport"), rapid.Uint16().Draw(t, "dport")
	if r.Initiator = flow.Initiator(rapid.IntRange(0, 2).Draw(t, "initiator")); r.Initiator != flow.InitiatorUnknown {
		r.InitiatorBy = flow.Evidence(rapid.IntRange(1, 4).Draw(t, "evidence"))
	}
	if rapid.IntRange(0, 3).Draw(t, "drops") == 0 {
		flowtest.Drop(t, &r)
	}
	if r.Family == 6 {
		r.FlowLabel = rapid.Uint32Range(0, 1<<20-1).Draw(t, "label")
		if rapid.IntRange(0, 3).Draw(t, "marked") == 0 {
			r.PDM = flowtest.PDM(t)
		}
		if rapid.IntRange(0, 3).Draw(t, "ioam") == 0 {
			r.IOAM = flowtest.IOAM(t)
		}
	}
	return r
}

// reported is the record as IPFIX tells it: of delays, two quantiles and no buckets.
func reported(r flow.Record) flow.Record {
	if r.Drop != nil {
		d := *r.Drop
		d.Text = "" // the id says it
		r.Drop = &d
		if r.PDM != nil {
			r.DroppedBytes, d.Verdict = 0, flow.VerdictNone
		}
	}
	if r.PDM != nil {
		p := *r.PDM
		for _, d := range []*flow.Delays{&p.Server, &p.Network} {
			d.Buckets = quantileBuckets(uint64(d.Quantile(0.5)), uint64(d.Quantile(0.99)))
		}
		r.PDM = &p
	}
	return r
}

// drawBack draws the other half of a conversation.
func drawBack(t *rapid.T, r flow.Record) flow.Record {
	b := drawRecord(t)
	b.Iface, b.Netns, b.IfIndex, b.Direction, b.Family = r.Iface, r.Netns, r.IfIndex, r.Direction^1, r.Family
	b.Src, b.Dst, b.Proto, b.SrcPort, b.DstPort = r.Dst, r.Src, r.Proto, r.DstPort, r.SrcPort
	b.VLAN, b.InnerVLAN, b.Tunnel, b.VNI, b.Unattributed = r.VLAN, r.InnerVLAN, r.Tunnel, r.VNI, r.Unattributed
	b.Initiator, b.InitiatorBy = r.Initiator.Opposite(), r.InitiatorBy
	if b.Family == 4 {
		b.FlowLabel, b.PDM, b.IOAM = 0, nil, nil
	} else if b.FlowLabel == 0 {
		b.FlowLabel = 5
	}
	return b
}

// What is decoded again equals what was exported, whatever the size of messages
// and the form of records, and in the same order but for the halves of a
// conversation, of which the initiator's comes first.
func TestEncodingIsLossless(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		biflow := rapid.Bool().Draw(rt, "biflow")
		mtu := rapid.SampledFrom([]int{512, 1400, 65507}).Draw(rt, "mtu")
		e := newExporter(t, func(c *Config) { c.Biflow, c.MTU = biflow, mtu })
		m := &memory{}
		e.session = m

		var want []flow.Record
		for range rapid.IntRange(1, 3).Draw(rt, "batches") {
			var batch []flow.Record
			for range rapid.IntRange(0, 30).Draw(rt, "records") {
				r := drawRecord(rt)
				batch = append(batch, r)
				if !r.Unattributed && rapid.Bool().Draw(rt, "both halves") {
					b := drawBack(rt, r)
					if first, _, _ := initiator(&r, &b); biflow && conversation(&r, &b) && first == &b {
						batch[len(batch)-1], b = b, r
					}
					batch = append(batch, b)
				}
			}
			for _, r := range batch {
				want = append(want, reported(r))
			}
			if n, err := e.Export(context.Background(), batch); n != len(batch) || err != nil {
				rt.Fatalf("exported %d of %d: %v", n, len(batch), err)
			}
		}

		d := &decoder{}
		records, err := d.stream(&m.Buffer)
		if err != nil {
			rt.Fatal(err)
		}
		got := collect(records, DocumentationPEN)
		if diff := cmp.Diff(want, got.flows, compareRecords); diff != "" {
			rt.Errorf("records differ (-exported +decoded):\n%s", diff)
		}
		if d.lost != 0 || m.largest > mtu || !d.exported.Equal(start) || d.domain != 1 || got.host != "gw" {
			rt.Errorf("%d lost, largest message %d of %d, exported %v, domain %d, host %q", d.lost, m.largest, mtu, d.exported, d.domain, got.host)
		}
	})
}

func TestNTP(t *testing.T) {
	for _, tt := range []struct {
		at   time.Time
		want uint64
	}{
		{time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), 2208988800 << 32},
		{time.Date(2023, 11, 14, 22, 13, 20, 500_000_000, time.UTC), (2208988800+1700000000)<<32 | 1<<31},
		{time.Date(2036, 2, 7, 6, 28, 16, 0, time.UTC), 0}, // the next era
	} {
		if got := ntp(tt.at); got != tt.want {
			t.Errorf("%v is %#x, want %#x", tt.at, got, tt.want)
		}
	}
	for ns := range int64(2_000_000) {
		at := time.Unix(1700000000, ns*499)
		if got := fromNTP(ntp(at)); !got.Equal(at) {
			t.Fatalf("%v becomes %v", at, got)
		}
	}
}

var benchmarkRecord = flow.Record{
	Iface: "eth0", IfIndex: 2, Family: 4, Proto: 6, SrcPort: 40000, DstPort: 443,
	Src: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Dst: netip.AddrFrom4([4]byte{198, 51, 100, 1}),
	Counters: flow.Counters{Packets: 10, Bytes: 4000, WireBytes: 4140}, First: start.Add(-time.Minute), Last: start, EndReason: flow.EndReasonActiveTimeout,
}

// benchmarkRecords are conversations, as the flow table exports them.
func benchmarkRecords() []flow.Record {
	records := make([]flow.Record, pipeline.BufferRecords)
	for i := range records {
		r := &records[i]
		*r = benchmarkRecord
		r.SrcPort = uint16(40000 + i/2)
		if i&1 == 1 {
			r.Direction, r.Src, r.Dst, r.SrcPort, r.DstPort = flow.Egress, r.Dst, r.Src, r.DstPort, r.SrcPort
		}
	}
	return records
}

// The cost of a record, all but the system call.
func BenchmarkExport(b *testing.B) {
	for _, bb := range []struct {
		name string
		set  func(*Config)
	}{
		{"flow", nil},
		{"biflow", func(c *Config) { c.Biflow = true }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			e := newExporter(b, bb.set)
			m := &memory{}
			e.session = m
			records := benchmarkRecords()
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(records) {
				m.Reset()
				if _, err := e.Export(context.Background(), records); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Each of extraFields alone makes a record one with extra fields, and no other counter does.
func TestHasExtraFields(t *testing.T) {
	for i := range flow.CounterFields {
		var r flow.Record
		*(*uint64)(unsafe.Add(unsafe.Pointer(&r.Counters), 8*i)) = 1
		want := slices.ContainsFunc(extraFields, func(f *flow.Field) bool { return f.Uint(&r) != 0 })
		if got := hasExtraFields(&r); got != want {
			t.Errorf("%+v: %v, want %v", r.Counters, got, want)
		}
	}
	for _, r := range []flow.Record{{RTT: flow.RTT{Responder: 1}}, {RTT: flow.RTT{Initiator: 1}}} {
		if !hasExtraFields(&r) {
			t.Errorf("%+v: no extra fields", r.RTT)
		}
	}
}

package flow

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Unix(1_000_000, 0)

func testTable(max int) *Table {
	cfg := TableConfig{MaxFlows: max, ActiveTimeout: 60 * time.Second, IdleTimeout: 15 * time.Second}
	return NewTable(cfg, func(i Iface) (string, string) { return fmt.Sprintf("if%d", i.IfIndex()), "" })
}

func tcpDelta(sport uint16, at time.Time, flags uint16) *Delta {
	k := Key{
		Src: netip.MustParseAddr("192.0.2.1").As16(), Dst: netip.MustParseAddr("192.0.2.2").As16(),
		SrcPort: sport, DstPort: 443, Proto: protoTCP, Iface: NewIface(0, 2), Direction: Egress,
	}
	return &Delta{Key: k, Counts: Counts{
		Packets: 2, Bytes: 200, WireBytes: 228, TCPFlags: flags,
		First: at.Add(-time.Second).UnixNano(), Last: at.UnixNano(),
	}}
}

func reversed(d *Delta) *Delta {
	r := *d
	r.Key = d.Key.Reverse()
	return &r
}

// end closes an interval and returns what expired.
func end(t *Table, now time.Time) (interval, expired []Record) {
	t.EndInterval(now, func(r *Record) { interval = append(interval, *r) }, func(r *Record) { expired = append(expired, *r) })
	return interval, expired
}

func TestIdleTimeout(t *testing.T) {
	table := testTable(10)
	table.Merge(tcpDelta(1, epoch, tcpACK))
	interval, expired := end(table, epoch.Add(time.Second))
	if len(interval) != 1 || interval[0].Packets != 2 || len(expired) != 0 {
		t.Fatalf("first interval: %v, expired %v", interval, expired)
	}
	if _, expired = end(table, epoch.Add(14*time.Second)); len(expired) != 0 {
		t.Fatalf("expired too early: %v", expired)
	}
	_, expired = end(table, epoch.Add(15*time.Second))
	if len(expired) != 1 || expired[0].EndReason != EndReasonIdleTimeout || expired[0].Packets != 2 {
		t.Fatalf("idle flow: %v", expired)
	}
	if live := table.Stats().Live; live != 0 {
		t.Errorf("%d flows left", live)
	}
}

func TestActiveTimeoutGivesDeltas(t *testing.T) {
	table := testTable(10)
	var got []Record
	for s := range 121 {
		now := epoch.Add(time.Duration(s) * time.Second)
		table.Merge(tcpDelta(1, now, tcpACK))
		_, expired := end(table, now)
		got = append(got, expired...)
	}
	table.Flush(nil, func(r *Record) { got = append(got, *r) })
	var packets uint64
	for i, r := range got {
		packets += r.Packets
		want := EndReasonActiveTimeout
		if i == len(got)-1 {
			want = EndReasonForcedEnd
		}
		if r.EndReason != want {
			t.Errorf("record %d: %v, want %v", i, r.EndReason, want)
		}
	}
	if len(got) != 3 || packets != 2*121 {
		t.Errorf("%d records with %d packets, want 3 with 242", len(got), packets)
	}
}

// A clock that is set back holds up no flow, idle or not.
func TestClockSetBack(t *testing.T) {
	table := testTable(10)
	table.Merge(tcpDelta(1, epoch, tcpACK))
	table.Merge(tcpDelta(2, epoch, tcpACK))
	end(table, epoch)
	back := epoch.Add(-time.Hour)
	table.Merge(tcpDelta(2, back, tcpACK))
	_, expired := end(table, back)
	reasons := map[uint16]EndReason{}
	for _, r := range expired {
		reasons[r.SrcPort] = r.EndReason
	}
	if len(expired) != 1 || reasons[1] != EndReasonIdleTimeout {
		t.Errorf("expired: %v, want the idle flow", reasons)
	}
	table.Merge(tcpDelta(3, epoch, tcpACK))
	end(table, epoch)
	table.Merge(tcpDelta(3, epoch, tcpACK))
	_, expired = end(table, back)
	if len(expired) == 0 || expired[0].EndReason != EndReasonActiveTimeout {
		t.Errorf("a flow from before the clock was set back goes on without a record: %v", expired)
	}
}

func TestEndOfFlowWaitsForTheLastACK(t *testing.T) {
	table := testTable(10)
	table.Merge(tcpDelta(1, epoch, tcpACK|tcpFIN))
	if _, expired := end(table, epoch); len(expired) != 0 {
		t.Fatalf("exported in the interval of its FIN: %v", expired)
	}
	_, expired := end(table, epoch.Add(time.Second))
	if len(expired) != 1 || expired[0].EndReason != EndReasonEndOfFlow {
		t.Fatalf("ended flow: %v", expired)
	}
}

func TestHalvesAreNeighbours(t *testing.T) {
	table := testTable(1000)
	for port := range uint16(100) {
		table.Merge(tcpDelta(port, epoch, tcpACK))
	}
	for port := range uint16(100) {
		table.Merge(reversed(tcpDelta(port, epoch, tcpACK)))
	}
	end(table, epoch)
	_, expired := end(table, epoch.Add(time.Minute))
	if len(expired) != 200 {
		t.Fatalf("%d records, want 200", len(expired))
	}
	for i := 0; i < len(expired); i += 2 {
		a, b := expired[i], expired[i+1]
		if a.Src != b.Dst || a.SrcPort != b.DstPort || a.Direction == b.Direction {
			t.Fatalf("records %d and %d are not the halves of one conversation: %v %v", i, i+1, a, b)
		}
	}
}

func TestFullTable(t *testing.T) {
	table := testTable(10)
	for port := range uint16(100) {
		table.Merge(tcpDelta(port, epoch, tcpACK))
	}
	interval, expired := end(table, epoch)
	var packets, unattributed uint64
	for _, r := range interval {
		packets += r.Packets
	}
	if packets != 200 {
		t.Errorf("interval has %d packets, want 200", packets)
	}
	for _, r := range expired {
		if r.EndReason != EndReasonLackOfResources {
			t.Errorf("%v", r.EndReason)
		}
		if r.Unattributed {
			unattributed += r.Packets
			if r.Src.IsValid() || r.SrcPort != 0 || r.Proto != protoTCP {
				t.Errorf("unattributed record with a flow: %+v", r)
			}
		}
	}
	s := table.Stats()
	if s.Live != 10 || unattributed != 160 || s.Unattributed != 160 {
		t.Errorf("live %d, unattributed %d (counted %d); want 10, 160, 160", s.Live, unattributed, s.Unattributed)
	}
}

// TestTotals: whatever comes in, in whatever order, the intervals and the
// expired records both add up to it, and no table outgrows its bound.
func TestTotals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := testTable(rapid.IntRange(1, 20).Draw(t, "max"))
		var in, inIntervals, out uint64
		now := epoch
		interval := func(r *Record) { inIntervals += r.Packets }
		expired := func(r *Record) { out += r.Packets }
		for range rapid.IntRange(1, 30).Draw(t, "intervals") {
			now = now.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond)
			for range rapid.IntRange(0, 30).Draw(t, "deltas") {
				d := tcpDelta(rapid.Uint16Range(0, 40).Draw(t, "port"), now, rapid.SampledFrom([]uint16{tcpACK, tcpSYN, tcpFIN | tcpACK, tcpRST}).Draw(t, "flags"))
				if rapid.Bool().Draw(t, "reverse") {
					d = reversed(d)
				}
				d.Unattributed = rapid.IntRange(0, 9).Draw(t, "unattributed") == 0
				d.Packets = rapid.Uint64Range(1, 1000).Draw(t, "packets")
				in += d.Packets
				table.Merge(d)
			}
			table.EndInterval(now, interval, expired)
			if live := table.Stats().Live; live > uint64(table.cfg.MaxFlows) {
				t.Fatalf("%d flows in a table of %d", live, table.cfg.MaxFlows)
			}
		}
		table.Flush(interval, expired)
		if in != out || in != inIntervals {
			t.Fatalf("in %d, intervals %d, expired %d", in, inIntervals, out)
		}
	})
}

// A sum of flows has nothing that only one of them has.
func TestSumsOfMixedFlows(t *testing.T) {
	table := NewTable(TableConfig{MaxFlows: 10}, func(Iface) (string, string) { return "eth0", "" })
	for port := range uint16(3) {
		d := tcpDelta(port, epoch.Add(-time.Duration(port)*time.Minute), tcpACK)
		d.Unattributed = true
		d.FlowLabel, d.VNI, d.RTT, d.PDM = 1, 2, RTT{Responder: 3, Initiator: 4}, &PDM{Received: 5}
		table.Merge(d)
	}
	var told int
	table.Flush(nil, func(r *Record) {
		told++
		if r.Packets != 6 || r.FlowLabel != 0 || r.VNI != 0 || r.RTT != (RTT{}) || r.PDM != nil {
			t.Errorf("%+v", *r)
		}
	})
	if told != 1 {
		t.Errorf("%d records, want one", told)
	}
}

func TestReverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := Key{
			Src: [16]byte{15: rapid.Byte().Draw(t, "src")}, Dst: [16]byte{15: rapid.Byte().Draw(t, "dst")},
			SrcPort: rapid.Uint16().Draw(t, "sport"), DstPort: rapid.Uint16().Draw(t, "dport"),
			Proto: rapid.SampledFrom([]uint8{6, 17, 132, 0}).Draw(t, "proto"),
		}
		if k.Reverse().Reverse() != k {
			t.Fatalf("%+v reversed twice: %+v", k, k.Reverse().Reverse())
		}
	})
	echo := Key{Proto: protoICMP, SrcPort: 7, DstPort: 8 << 8}
	if r := echo.Reverse(); r.DstPort != 0 || r.SrcPort != 7 || r.Reverse() != echo {
		t.Errorf("reverse of an echo request: %+v", r)
	}
}

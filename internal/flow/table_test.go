package flow

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Unix(1_000_000, 0)

// recorder is a table with what left it.
type recorder struct {
	*Table
	interval, expired []Record
}

func testTable(max int) *recorder {
	cfg := TableConfig{MaxFlows: max, ActiveTimeout: 60 * time.Second, IdleTimeout: 15 * time.Second}
	r := &recorder{}
	r.Table = NewTable(cfg, func(i Iface) (string, string) { return fmt.Sprintf("if%d", i.IfIndex()), "" }, TableOutput{
		Interval: func(record *Record) { r.interval = append(r.interval, *record) },
		Expired:  func(record *Record) { r.expired = append(r.expired, *record) },
	})
	return r
}

// take returns what left since the last call.
func (r *recorder) take() (interval, expired []Record) {
	interval, expired = r.interval, r.expired
	r.interval, r.expired = nil, nil
	return interval, expired
}

func tcpDelta(sport uint16, at time.Time, flags uint16) *Delta {
	k := Key{
		Src: netip.MustParseAddr("192.0.2.1").As16(), Dst: netip.MustParseAddr("192.0.2.2").As16(),
		SrcPort: sport, DstPort: 443, Proto: protoTCP, Iface: NewIface(0, 2), Direction: Egress,
	}
	return &Delta{Key: k, Counts: Counts{
		Counters: Counters{Packets: 2, Bytes: 200, WireBytes: 228}, TCPFlags: flags,
		First: at.Add(-time.Second).UnixNano(), Last: at.UnixNano(),
	}}
}

func reversed(d *Delta) *Delta {
	r := *d
	r.Key = d.Key.Reverse()
	return &r
}

// end ends an interval and returns what left the table since the last.
func end(t *recorder, now time.Time) (interval, expired []Record) {
	t.EndInterval(now)
	return t.take()
}

// A record has the index that the host knows, which need not be that in Iface.
func TestIfIndex(t *testing.T) {
	var got []uint32
	note := func(r *Record) { got = append(got, r.IfIndex) }
	for _, of := range []func(Iface) uint32{nil, func(i Iface) uint32 { return uint32(i) + 5<<22 }} {
		table := NewTable(TableConfig{MaxFlows: 10, IfIndex: of}, anyName, TableOutput{Expired: note})
		table.Merge(tcpDelta(1, time.Now(), 0))
		table.Flush()
	}
	if len(got) != 2 || got[0] != 2 || got[1] != 5<<22+2 {
		t.Errorf("indices %d", got)
	}
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
	table.Flush()
	_, rest := table.take()
	got = append(got, rest...)
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

// A connection whose FINs and last ACK come in three intervals leaves once, both halves next to each other.
func TestEndOfFlowOfBothHalves(t *testing.T) {
	table := testTable(10)
	there, back := tcpDelta(1, epoch, tcpACK|tcpFIN), reversed(tcpDelta(1, epoch, tcpACK|tcpFIN))
	for i, d := range []*Delta{there, back, tcpDelta(1, epoch, tcpACK)} {
		table.Merge(d)
		if _, expired := end(table, epoch); len(expired) != 0 {
			t.Fatalf("exported after interval %d: %v", i, expired)
		}
	}
	_, expired := end(table, epoch)
	if len(expired) != 2 || expired[0].Src != expired[1].Dst || expired[0].Packets+expired[1].Packets != 6 {
		t.Fatalf("not both halves at once: %v", expired)
	}
	for _, r := range expired {
		if r.EndReason != EndReasonEndOfFlow {
			t.Errorf("end reason %v", r.EndReason)
		}
	}
	// A half that goes on does not keep the other for longer than the idle timeout.
	table.Merge(tcpDelta(2, epoch, tcpACK|tcpFIN))
	for s := range 15 {
		table.Merge(reversed(tcpDelta(2, epoch.Add(time.Duration(s)*time.Second), tcpACK)))
		if _, expired := end(table, epoch.Add(time.Duration(s)*time.Second)); len(expired) != 0 {
			t.Fatalf("after %d s: %v", s, expired)
		}
	}
	table.Merge(reversed(tcpDelta(2, epoch.Add(15*time.Second), tcpACK)))
	if _, expired = end(table, epoch.Add(15*time.Second)); len(expired) != 1 || expired[0].EndReason != EndReasonIdleTimeout {
		t.Errorf("a half without packets for 15 s: %v", expired)
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

// A full table exports its oldest flows early, whole, and both halves of a
// conversation next to each other.
func TestFullTable(t *testing.T) {
	table := testTable(10)
	for port := range uint16(100) {
		d := tcpDelta(port, epoch.Add(time.Duration(port)*time.Second), tcpACK)
		table.Merge(d)
		table.Merge(reversed(d))
	}
	interval, expired := end(table, epoch.Add(100*time.Second))
	s := table.Stats()
	if len(interval) != 200 || s.Live > 10 || s.Live < 8 || s.Shed != 200-s.Live || uint64(len(expired)) != s.Shed {
		t.Errorf("%d records of the interval, %d expired; %+v", len(interval), len(expired), s)
	}
	for i, r := range expired {
		if r.EndReason != EndReasonLackOfResources || r.Unattributed || r.Packets != 2 {
			t.Errorf("%+v", r)
		}
		if other := expired[i^1]; r.Src != other.Dst || r.SrcPort != other.DstPort {
			t.Errorf("record %d: %v %d to %d, next to %d to %d", i, r.Direction, r.SrcPort, r.DstPort, other.SrcPort, other.DstPort)
		}
	}
	// What stays in the table is exported once, when it ends.
	_, rest := end(table, epoch.Add(time.Hour))
	if uint64(len(rest)) != s.Live {
		t.Errorf("%d records at the end, want %d", len(rest), s.Live)
	}
}

// A flow that stays is not exported early while others that were seen before it
// are there, and what it has goes on.
func TestShedTheOldest(t *testing.T) {
	table := testTable(8)
	for second := range 1000 {
		now := epoch.Add(time.Duration(second) * time.Second / 100)
		table.Merge(tcpDelta(60000, now, tcpACK))
		table.Merge(tcpDelta(uint16(second), now, tcpACK))
	}
	_, expired := table.take()
	for _, r := range expired {
		if r.SrcPort == 60000 {
			t.Fatalf("the flow that goes on was exported: %+v", r)
		}
	}
	if len(expired) < 900 {
		t.Errorf("%d records", len(expired))
	}
}

// TestTotals: whatever is merged, in whatever order and between whichever pieces
// of an interval's end, the intervals and the expired records both add up to it,
// and no table ever outgrows its bound.
func TestTotals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := testTable(rapid.IntRange(1, 20).Draw(t, "max"))
		now := epoch
		var in uint64
		merge := func(n int) {
			for range n {
				d := tcpDelta(rapid.Uint16Range(0, 40).Draw(t, "port"), now, rapid.SampledFrom([]uint16{tcpACK, tcpSYN, tcpFIN | tcpACK, tcpRST}).Draw(t, "flags"))
				if rapid.Bool().Draw(t, "reverse") {
					d = reversed(d)
				}
				d.Unattributed = rapid.IntRange(0, 9).Draw(t, "unattributed") == 0
				d.Packets = rapid.Uint64Range(1, 1000).Draw(t, "packets")
				in += d.Packets
				table.Merge(d)
				if live := table.Stats().Live; live > uint64(table.cfg.MaxFlows) {
					t.Fatalf("%d flows in a table of %d", live, table.cfg.MaxFlows)
				}
			}
		}
		between := rapid.IntRange(0, 2)
		inPiece := false
		table.out.Piece = func() {
			if !inPiece { // merging may end in Piece
				inPiece = true
				merge(between.Draw(t, "between"))
				inPiece = false
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "intervals") {
			now = now.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond)
			merge(rapid.IntRange(0, 30).Draw(t, "deltas"))
			table.EndInterval(now)
		}
		table.Flush()
		table.out.Piece = nil
		table.Flush() // what came between the pieces of the first
		var inIntervals, out uint64
		for _, r := range table.interval {
			inIntervals += r.Packets
		}
		for _, r := range table.expired {
			out += r.Packets
		}
		if in != out || in != inIntervals {
			t.Fatalf("in %d, intervals %d, expired %d", in, inIntervals, out)
		}
		if s := table.Stats(); s.Live != 0 {
			t.Fatalf("%d flows left", s.Live)
		}
	})
}

// A sum of flows has nothing that only one of them has.
func TestSumsOfMixedFlows(t *testing.T) {
	table := testTable(10)
	for port := range uint16(3) {
		d := tcpDelta(port, epoch.Add(-time.Duration(port)*time.Minute), tcpACK)
		d.Unattributed = true
		d.FlowLabel, d.VNI, d.RTT, d.PDM = 1, 2, RTT{Responder: 3, Initiator: 4}, &PDM{Received: 5}
		table.Merge(d)
	}
	table.Flush()
	_, expired := table.take()
	if len(expired) != 1 {
		t.Fatalf("%d records, want one", len(expired))
	}
	if r := expired[0]; r.Packets != 6 || r.FlowLabel != 0 || r.VNI != 0 || r.RTT != (RTT{}) || r.PDM != nil {
		t.Errorf("%+v", r)
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

package store

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
	"github.com/waymark-net/waymark/internal/query"
)

// Over random batches: the bound holds, totals of what is kept are exact, and
// rows are what a plain model says.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		s := New(Config{History: limit})
		var batches [][]flow.Record
		for n := range rapid.IntRange(1, 6).Draw(t, "intervals") {
			batch := make([]flow.Record, rapid.IntRange(0, 40).Draw(t, "records"))
			for i := range batch {
				batch[i] = record(rapid.Byte().Draw(t, "src"), rapid.ByteRange(0, 2).Draw(t, "dst"), rapid.Uint64Range(1, 50).Draw(t, "bytes"))
			}
			batches = append(batches, batch)
			fill(s, n, n+1, batch...)
		}
		a, err := s.Query(context.Background(), query.Plan{By: query.By{Keys: []query.Key{{Name: "dst", Bits4: 32, Bits6: 128}}}})
		if err != nil {
			t.Fatal(err)
		}
		kept := batches[len(batches)-a.Intervals:]
		var want, summed uint64
		byDst := map[netip.Addr]uint64{}
		cost := 0
		for _, batch := range kept {
			cost += min(max(len(batch), 1), limit+1)
			slices.SortStableFunc(batch, func(a, b flow.Record) int { return cmp.Compare(b.Bytes, a.Bytes) })
			for i, r := range batch {
				want += r.Bytes
				if i >= limit {
					summed++
				}
				byDst[r.Dst] += r.Bytes
			}
		}
		if cost > limit+1 {
			t.Fatalf("%d records kept, the bound is %d", cost, limit)
		}
		if a.Total.Bytes != want || a.Summed != summed {
			t.Fatalf("%d bytes, %d summed; want %d and %d", a.Total.Bytes, a.Summed, want, summed)
		}
		if summed > 0 {
			return // which of equal flows were summed is open
		}
		for _, row := range a.Rows {
			if byDst[row.Dst] != row.Bytes {
				t.Fatalf("%s has %d bytes, want %d", row.Dst, row.Bytes, byDst[row.Dst])
			}
		}
	})
}

func drawRecord(t *rapid.T) flow.Record {
	u64 := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	u32 := func(name string) uint32 { return rapid.Uint32().Draw(t, name) }
	u16 := func(name string) uint16 { return rapid.Uint16().Draw(t, name) }
	u8 := func(name string) uint8 { return rapid.Uint8().Draw(t, name) }
	moment := func(name string) time.Time { return time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, name)) }
	r := flow.Record{
		Iface: rapid.String().Draw(t, "iface"), Netns: rapid.String().Draw(t, "netns"), IfIndex: u32("ifindex"),
		Direction: flow.Direction(u8("direction") & 1), Family: 4, Proto: u8("proto"),
		SrcPort: u16("sport"), DstPort: u16("dport"), VLAN: u16("vlan"), InnerVLAN: u16("inner"),
		Tunnel: flow.Tunnel(u8("tunnel")), VNI: u32("vni"), TOS: u8("tos"), TCPFlags: u16("flags"),
		FlowLabel: u32("label"), TTLMin: u8("ttl_min"), TTLMax: u8("ttl_max"),
		Counters: flow.Counters{Packets: u64("packets"), Bytes: u64("bytes"), PayloadBytes: u64("payload"), WireBytes: u64("wire"), Fragments: u64("fragments"), CEPackets: u64("ce"), Forwarded: u64("forwarded")}, First: moment("first"), Last: moment("last"),
		EndReason: flow.EndReason(u8("reason")), Unattributed: rapid.Bool().Draw(t, "unattributed"),
		RTT: flow.RTT{Responder: time.Duration(u32("responder")), Initiator: time.Duration(u32("initiator"))},
	}
	if rapid.Bool().Draw(t, "forwarded at XDP") {
		r.Other, r.OtherIfIndex = rapid.StringN(1, -1, -1).Draw(t, "other"), u32("other index")
	}
	if rapid.Bool().Draw(t, "marked") {
		r.PDM = flowtest.PDM(t)
	}
	if rapid.Bool().Draw(t, "ioam") {
		r.IOAM = flowtest.IOAM(t)
	}
	if rapid.IntRange(0, 3).Draw(t, "drops") == 0 {
		flowtest.Drop(t, &r)
	}
	src, dst := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "src"), rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "dst")
	if rapid.Bool().Draw(t, "v6") {
		r.Family = 6
	} else {
		src, dst = src[:4], dst[:4]
	}
	if !r.Unattributed {
		r.Src, _ = netip.AddrFromSlice(src)
		r.Dst, _ = netip.AddrFromSlice(dst)
	}
	return r
}

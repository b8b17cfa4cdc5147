package store

import (
	"net/netip"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/query"
)

// delays are those given.
func delays(times ...time.Duration) flow.Delays {
	var h inband.Histogram
	for _, d := range times {
		h.Add(uint64(d))
	}
	return flow.DelaysOf(&h)
}

// marked is a session of this host with a peer: what it sent and what came back.
func marked(peer byte, port uint16, server, network time.Duration) (sent, received flow.Record) {
	received = flow.Record{
		Iface: "eth0", IfIndex: 2, Direction: flow.Ingress, Family: 6, Proto: 6,
		Src: netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: peer}), Dst: netip.MustParseAddr("2001:db8:ffff::1"),
		SrcPort: port, DstPort: 50000, Counters: flow.Counters{Packets: 10, Bytes: 1000}, First: at(0), Last: at(1),
		PDM: &flow.PDM{Received: 10, Lost: 1, Server: delays(server), Network: delays(network)},
	}
	sent = received
	sent.Direction = flow.Egress
	sent.Src, sent.Dst, sent.SrcPort, sent.DstPort = received.Dst, received.Src, received.DstPort, received.SrcPort
	sent.PDM = &flow.PDM{Sent: 12}
	return sent, received
}

func TestPeersAreSources(t *testing.T) {
	s := New(Default())
	var all []flow.Record
	for _, one := range []struct {
		peer            byte
		port            uint16
		server, network time.Duration
	}{
		{1, 443, 40 * time.Millisecond, 8 * time.Millisecond},
		{2, 443, 4 * time.Millisecond, 80 * time.Millisecond},
		{3, 60000, 20 * time.Millisecond, time.Millisecond}, // a client of ours
	} {
		sent, received := marked(one.peer, one.port, one.server, one.network)
		all = append(all, sent, received)
	}
	fill(s, 0, 1, all...)

	a := ask(t, s, query.Plan{By: parseBy(t, "session"), Sort: "server"})
	if len(a.Rows) != 3 {
		t.Fatalf("%d rows", len(a.Rows))
	}
	for i, peer := range []byte{1, 3, 2} {
		row := &a.Rows[i]
		if row.Src.As16()[15] != peer || row.PDM.Sent != 12 || row.PDM.Received != 10 || row.Back.Packets != 10 {
			t.Errorf("row %d: %s, %d sent, %d received, %d packets back", i, row.Src, row.PDM.Sent, row.PDM.Received, row.Back.Packets)
		}
	}
	for _, tt := range []struct {
		by   string
		sort string
		want int
		lost int64 // of the first row
	}{
		{"peer/64", "network", 1, 3},
		{"peer_service", "lost", 2, 2},
		{"local_service", "delays", 2, 2},
		{"peer", "network_p99", 3, 1},
		{"iface,direction", "server_p99", 2, 3},
	} {
		a := ask(t, s, query.Plan{By: parseBy(t, tt.by), Sort: tt.sort})
		if len(a.Rows) != tt.want || a.Rows[0].PDM.Lost != tt.lost {
			t.Errorf("by %s: %d rows, %d lost in the first", tt.by, len(a.Rows), a.Rows[0].PDM.Lost)
		}
	}
}

func TestPingsOfAPeerAreOneRow(t *testing.T) {
	sent, received := marked(1, 77, time.Millisecond, time.Millisecond)
	sent.Proto, received.Proto = 58, 58
	sent.SrcPort, received.SrcPort = 77, 77 // identifier
	sent.DstPort, received.DstPort = 128<<8, 129<<8
	s := New(Default())
	fill(s, 0, 1, sent, received)
	a := ask(t, s, query.Plan{By: parseBy(t, "session")})
	if len(a.Rows) != 1 || a.Rows[0].DstPort != 128<<8 || a.Rows[0].SrcPort != 77 {
		t.Errorf("%+v", a.Rows)
	}
}

func TestRowsWithoutMarksComeLast(t *testing.T) {
	s := New(Default())
	_, received := marked(1, 443, time.Millisecond, time.Millisecond)
	plain := record(1, 2, 1_000_000)
	fill(s, 0, 1, plain, received)
	for _, sort := range []string{"server", "network", "lost", "suspicious"} {
		if a := ask(t, s, query.Plan{Sort: sort}); a.Rows[0].PDM == nil || a.Rows[1].PDM != nil {
			t.Errorf("sorted by %s, a flow without marks comes first", sort)
		}
	}
}

// Merged at once or step by step, by whatever keys, delays are the same; and
// neither an answer nor the history changes when it is asked again.
func TestMergedDelaysAreTheSameInAnySteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := New(Default())
		var want flow.PDM
		for n := range rapid.IntRange(1, 4).Draw(t, "intervals") {
			batch := make([]flow.Record, rapid.IntRange(0, 10).Draw(t, "records"))
			for i := range batch {
				_, batch[i] = marked(rapid.ByteRange(0, 5).Draw(t, "peer"), rapid.Uint16Range(1, 3).Draw(t, "port"), 0, 0)
				batch[i].PDM = nil
				if rapid.Bool().Draw(t, "marked") {
					batch[i].PDM = flowtest.PDM(t)
					batch[i].PDM.Lost %= 1 << 32
					want.Add(batch[i].PDM)
				}
			}
			fill(whole, n, n+1, batch...)
		}
		all := query.By{Keys: []query.Key{{Name: "family", Bits4: 32, Bits6: 128}}}
		for _, by := range []string{"flow", "peer/64,dport", "src,sport", "service", "pair", "iface"} {
			rows := ask(t, whole, query.Plan{By: parseBy(t, by)}).Rows
			again := New(Default())
			var merged []flow.Record
			for i := range rows {
				merged = append(merged, rows[i].Record)
			}
			fill(again, 0, 1, merged...)
			for _, s := range []*Store{whole, again} {
				var got flow.PDM
				for _, row := range ask(t, s, query.Plan{By: all}).Rows {
					if row.PDM != nil {
						got.Add(row.PDM)
					}
				}
				if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("by %s (-want +got):\n%s", by, diff)
				}
			}
		}
	})
}

// Of a full interval, the largest flows keep what was reported of them, and nothing
// else takes room.
func TestFullIntervalKeepsPDMOfItsRows(t *testing.T) {
	s := New(Config{History: 2})
	iv := s.Begin(at(0))
	for n := range byte(200) {
		r := record(n, 1, uint64(n)+1)
		r.PDM = &flow.PDM{Received: uint64(n), Server: delays(time.Duration(n) * time.Millisecond)}
		iv.Add(&r)
	}
	iv.End(at(1))
	kept := s.view().intervals[0]
	if len(kept.reported) > 100 {
		t.Errorf("%d bytes are kept of two flows", len(kept.reported))
	}
	a := ask(t, s, query.Plan{}) // the sum of the others is the first row
	for i, want := range []uint64{199, 198} {
		if row := &a.Rows[1+i]; row.PDM == nil || row.PDM.Received != want || row.PDM.Server.Max != want*1e6 {
			t.Errorf("row %d: %+v", i, row.PDM)
		}
	}
}

package store

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at is n seconds after the epoch of these tests.
func at(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

// record is a UDP flow with the given last bytes of its addresses.
func record(src, dst byte, bytes uint64) flow.Record {
	return flow.Record{
		Iface: "eth0", IfIndex: 2, Direction: flow.Egress, Family: 4,
		Src: netip.AddrFrom4([4]byte{10, 0, 0, src}), Dst: netip.AddrFrom4([4]byte{10, 0, 1, dst}),
		Proto: 17, SrcPort: 5000, DstPort: 53, Counters: flow.Counters{Packets: 1, Bytes: bytes, WireBytes: bytes + 14},
		First: at(0), Last: at(1),
	}
}

func fill(s *Store, from, to int, records ...flow.Record) {
	iv := s.Begin(at(from))
	for i := range records {
		iv.Add(&records[i])
	}
	iv.End(at(to))
}

func ask(t rapid.TB, s *Store, q query.Plan) query.Answer {
	t.Helper()
	a, err := s.Query(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parseBy(t rapid.TB, text string) query.By {
	t.Helper()
	by, err := query.ParseBy(text)
	if err != nil {
		t.Fatal(err)
	}
	return by
}

func TestEmpty(t *testing.T) {
	a := ask(t, New(Default()), query.Plan{})
	if a.Intervals != 0 || !a.From.IsZero() || len(a.Rows) != 0 {
		t.Errorf("%+v", a)
	}
}

func TestMergesAFlowOverIntervals(t *testing.T) {
	s := New(Default())
	one := record(1, 2, 100)
	one.RTT = flow.RTT{Responder: 4 * time.Millisecond}
	one.TCPFlags, one.TTLMin, one.TTLMax = 0x02, 60, 62
	two := record(1, 2, 50)
	two.First, two.Last = at(10), at(12)
	two.RTT = flow.RTT{Responder: 8 * time.Millisecond, Initiator: 2 * time.Millisecond}
	two.TCPFlags, two.TTLMin, two.TTLMax = 0x10, 61, 64
	fill(s, 0, 10, one)
	fill(s, 10, 20, two)

	a := ask(t, s, query.Plan{})
	if !a.From.Equal(at(0)) || !a.To.Equal(at(20)) || a.Intervals != 2 || a.Records != 2 || a.Groups != 1 {
		t.Fatalf("%+v", a)
	}
	want := record(1, 2, 150)
	want.Packets, want.WireBytes = 2, 178
	want.First, want.Last = at(0), at(12)
	want.RTT = flow.RTT{Responder: 6 * time.Millisecond, Initiator: 2 * time.Millisecond}
	want.TCPFlags, want.TTLMin, want.TTLMax = 0x12, 60, 64
	want.Family = 4
	if diff := gocmp.Diff(want, a.Rows[0].Record, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a.Rows[0].RTTSeen != 2 || a.Rows[0].Records != 2 {
		t.Errorf("%+v", a.Rows[0])
	}
	if got, want := a.Rows[0].Rate(), 150*8/12.0; got != want {
		t.Errorf("Rate = %v, want %v", got, want)
	}
	if a := ask(t, s, query.Plan{Since: at(10)}); a.Intervals != 1 || a.Total.Bytes != 50 || !a.From.Equal(at(10)) {
		t.Errorf("since the end of the first: %+v", a)
	}
}

func TestOldestIntervalsLeave(t *testing.T) {
	s := New(Config{History: 3})
	for n := range 5 {
		fill(s, n, n+1, record(byte(n), 1, 10), record(byte(n), 2, 10))
	}
	a := ask(t, s, query.Plan{})
	if !a.From.Equal(at(4)) || a.Records != 2 {
		t.Errorf("from %v with %d records, want the last interval alone", a.From, a.Records)
	}
	// Intervals without flows take their place, too.
	for n := range 3 {
		fill(s, 5+n, 6+n)
	}
	if a := ask(t, s, query.Plan{}); !a.From.Equal(at(5)) || a.Intervals != 3 || a.Records != 0 {
		t.Errorf("%+v", a)
	}
}

func TestIntervalBeyondTheBound(t *testing.T) {
	s := New(Config{History: 10})
	var records []flow.Record
	for n := range 100 {
		r := record(byte(n), 1, uint64(100+n*37%100))
		r.Proto = []uint8{6, 17}[n%2]
		r.Direction = flow.Direction(n % 3 % 2)
		records = append(records, r)
	}
	fill(s, 0, 1, records...)
	a := ask(t, s, query.Plan{})
	if a.Summed != 90 {
		t.Errorf("Summed = %d, want 90", a.Summed)
	}
	if want := 10 + 4; len(a.Rows) != want {
		t.Errorf("%d rows, want 10 flows and one sum for each of 2 directions and 2 protocols", len(a.Rows))
	}
	var bytes, packets uint64
	for _, r := range records {
		bytes += r.Bytes
		packets += r.Packets
	}
	if a.Total.Bytes != bytes || a.Total.Packets != packets {
		t.Errorf("total %+v, want %d bytes in %d packets", a.Total, bytes, packets)
	}
	for _, row := range a.Rows {
		if !row.Unattributed && row.Bytes < 190 {
			t.Errorf("kept a flow of %d bytes, though ten have 190 and more", row.Bytes)
		}
	}
}

func TestSortAndLimit(t *testing.T) {
	s := New(Default())
	a, b, c := record(1, 1, 30), record(2, 1, 20), record(3, 1, 10)
	b.Packets, c.Packets = 9, 5
	b.RTT = flow.RTT{Responder: 1, Initiator: 1}
	c.Last = at(100)
	fill(s, 0, 1, c, a, b)
	for _, tt := range []struct {
		sort    string
		reverse bool
		want    []byte
	}{
		{"", false, []byte{1, 2, 3}},
		{"bytes", true, []byte{3, 2, 1}},
		{"packets", false, []byte{2, 3, 1}},
		{"rtt", false, []byte{2, 1, 3}},
		{"last", false, []byte{3, 1, 2}},
		{"rate", false, []byte{1, 2, 3}},
		{"src", false, []byte{1, 2, 3}},
		{"src", true, []byte{3, 2, 1}},
		{"proto", true, []byte{1, 2, 3}},
	} {
		answer := ask(t, s, query.Plan{Sort: tt.sort, Reverse: tt.reverse})
		var got []byte
		for _, row := range answer.Rows {
			b := row.Src.As4()
			got = append(got, b[3])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("sort %s, reverse %v: %v, want %v", tt.sort, tt.reverse, got, tt.want)
		}
	}
	answer := ask(t, s, query.Plan{Limit: 2})
	if len(answer.Rows) != 2 || answer.Groups != 3 || answer.Total.Bytes != 60 {
		t.Errorf("limit 2: %d rows of %d, total %d bytes", len(answer.Rows), answer.Groups, answer.Total.Bytes)
	}
}

func TestFilter(t *testing.T) {
	s := New(Default())
	fill(s, 0, 1, record(1, 1, 30), record(2, 1, 20))
	f, err := filter.Parse("src 10.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	if a := ask(t, s, query.Plan{Filter: f}); a.Total.Bytes != 20 || a.Records != 1 || a.Groups != 1 {
		t.Errorf("%+v", a)
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"":                  `group by "": there are flow, transit, conversation, service, pair, session, peer`,
		"scr":               `group by "scr": did you mean src?`,
		"proto/8":           "group by proto/8: only src and dst can be cut to a prefix",
		"src/129":           "group by src/129: write src/24 for IPv4, src/64 for IPv6 or src/24/48 for both",
		"src/33/64":         "group by src/33/64: write src/24",
		"src/x":             "group by src/x: write src/24",
		"src/24/":           "group by src/24/: write src/24",
		"src,,dst":          `group by ""`,
		"pair,conversation": "group by conversation: not together with another fold",
	} {
		_, err := query.ParseBy(text)
		if err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("query.ParseBy(%q): %v, want %s", text, err, want)
		}
	}
	for sort, want := range map[string]string{
		"byte": `sort by "byte": did you mean bytes?`,
		"src":  `sort by "src": there are records, rate, delay, delays, packets, bytes, wire_bytes, first, last, payload_bytes, fragments, ce_packets, forwarded, ttl_min, ttl_max, rtt_responder, rtt_initiator, rtt, drops, dropped_bytes, lost, reordered, duplicates, suspicious, server, server_p90, server_p99, network, network_p90, network_p99, traced_packets, path_changes, path_lost, path_reordered, path_duplicates, path_delay, proto`,
	} {
		_, err := New(Default()).Query(context.Background(), query.Plan{By: parseBy(t, "proto"), Sort: sort})
		if err == nil || err.Error() != want {
			t.Errorf("sort %s: %v, want %s", sort, err, want)
		}
	}
}

// Tests of sums are of rows: of the whole conversation, over all intervals, and
// totals are those of the rows that are left.
func TestFilterOfRows(t *testing.T) {
	s := New(Default())
	back := func(r flow.Record) flow.Record {
		r.Src, r.Dst, r.SrcPort, r.DstPort, r.Direction = r.Dst, r.Src, r.DstPort, r.SrcPort, flow.Ingress
		return r
	}
	fill(s, 0, 10, record(1, 1, 400), back(record(1, 1, 300)), record(2, 1, 900), record(3, 1, 5000))
	fill(s, 10, 20, record(1, 1, 350))
	for _, tt := range []struct {
		by, filter string
		rows       int
		bytes      uint64
		err        bool
	}{
		{"conversation", "bytes > 1000", 2, 6050, false},
		{"conversation", "bytes > 1000 and src 10.0.0.1", 0, 0, false}, // 750 from it
		{"conversation", "bytes > 1000 and host 10.0.0.1", 1, 1050, false},
		{"conversation", "bytes < 1000", 1, 900, false},
		{"flow", "bytes > 700", 3, 6650, false},
		{"flow", "bytes > 700 and egress or bytes < 301", 4, 6950, false},
		{"src", "packets 2", 1, 750, false},
		{"conversation", "ingress or bytes > 1000", 0, 0, true},
	} {
		f, err := filter.Parse(tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		a, err := s.Query(context.Background(), query.Plan{By: parseBy(t, tt.by), Filter: f})
		if len(a.Rows) != tt.rows || a.Groups != tt.rows || a.Total.Bytes != tt.bytes || (err != nil) != tt.err {
			t.Errorf("by %s, %s: %d rows of %d with %d bytes, %v; want %d with %d", tt.by, tt.filter, len(a.Rows), a.Groups, a.Total.Bytes, err, tt.rows, tt.bytes)
		}
	}
}

// A burst of a millisecond is no rate.
func TestRateOfABurst(t *testing.T) {
	for _, tt := range []struct {
		lasted time.Duration
		want   float64
	}{{0, 8000}, {time.Millisecond, 8000}, {time.Second, 8000}, {4 * time.Second, 2000}} {
		w := query.Row{Record: flow.Record{Counters: flow.Counters{Bytes: 1000}, First: at(0), Last: at(0).Add(tt.lasted)}}
		if got := w.Rate(); got != tt.want {
			t.Errorf("1000 bytes in %v: %v bit/s, want %v", tt.lasted, got, tt.want)
		}
	}
}

func parseFilter(t rapid.TB, text string) filter.Filter {
	t.Helper()
	f, err := filter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at is n seconds after the epoch of these tests.
func at(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

// record is a UDP flow with the given last octets of its addresses.
func record(src, dst byte, bytes uint64) flow.Record {
	return flow.Record{
		Iface: "eth0", IfIndex: 2, Direction: flow.Egress, Family: 4,
		Src: netip.AddrFrom4([4]byte{10, 0, 0, src}), Dst: netip.AddrFrom4([4]byte{10, 0, 1, dst}),
		Proto: 17, SrcPort: 5000, DstPort: 53, Packets: 1, Bytes: bytes, WireBytes: bytes + 14,
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

func ask(t rapid.TB, s *Store, q Query) Answer {
	t.Helper()
	a, err := s.Query(q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parseBy(t rapid.TB, text string) By {
	t.Helper()
	by, err := ParseBy(text)
	if err != nil {
		t.Fatal(err)
	}
	return by
}

func TestEmpty(t *testing.T) {
	a := ask(t, New(Default()), Query{})
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

	a := ask(t, s, Query{})
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
	if a := ask(t, s, Query{Since: at(10)}); a.Intervals != 1 || a.Total.Bytes != 50 || !a.From.Equal(at(10)) {
		t.Errorf("since the end of the first: %+v", a)
	}
}

func TestOldestIntervalsLeave(t *testing.T) {
	s := New(Config{History: 3})
	for n := range 5 {
		fill(s, n, n+1, record(byte(n), 1, 10), record(byte(n), 2, 10))
	}
	a := ask(t, s, Query{})
	if !a.From.Equal(at(4)) || a.Records != 2 {
		t.Errorf("from %v with %d records, want the last interval alone", a.From, a.Records)
	}
	// Intervals without flows take their place, too.
	for n := range 3 {
		fill(s, 5+n, 6+n)
	}
	if a := ask(t, s, Query{}); !a.From.Equal(at(5)) || a.Intervals != 3 || a.Records != 0 {
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
	a := ask(t, s, Query{})
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

func TestKeys(t *testing.T) {
	v6 := flow.Record{
		Iface: "eth1", Netns: "blue", Family: 6, Proto: 6, SrcPort: 40000, DstPort: 443, VLAN: 7, TOS: 8, Bytes: 1000, Packets: 2,
		Src: netip.MustParseAddr("2001:db8:0:1::1"), Dst: netip.MustParseAddr("2001:db8:0:2::1"), First: at(1), Last: at(2),
	}
	back := v6
	back.Src, back.Dst, back.SrcPort, back.DstPort, back.Bytes = v6.Dst, v6.Src, 443, 40000, 9000
	lost := flow.Record{Iface: "eth0", Family: 6, Proto: 17, Bytes: 7, Packets: 1, Unattributed: true, First: at(1), Last: at(1)}
	s := New(Default())
	fill(s, 0, 10, record(1, 1, 10), record(2, 1, 20), record(3, 9, 30), v6, back, lost)

	for _, tt := range []struct {
		by   string
		want []string
	}{
		{"src/24", []string{"2001:db8:0:2::1/128 9000", "2001:db8:0:1::1/128 1000", "10.0.0.0/24 60", "? 7"}},
		{"src/64", []string{"2001:db8:0:2::/64 9000", "2001:db8:0:1::/64 1000", "10.0.0.3/32 30", "10.0.0.2/32 20", "10.0.0.1/32 10", "? 7"}},
		{"src/8/32", []string{"2001:db8::/32 10000", "10.0.0.0/8 60", "? 7"}},
		{"src/0/0", []string{"::/0 10000", "0.0.0.0/0 60", "? 7"}},
		{"dst/32/48", []string{"2001:db8::/48 10000", "10.0.1.1/32 30", "10.0.1.9/32 30", "? 7"}},
		{"proto", []string{"6 10000", "17 67"}},
		{"iface,netns", []string{"eth1 blue 10000", "eth0  67"}},
		{"family", []string{"6 10007", "4 60"}},
		{"dport", []string{"40000 9000", "443 1000", "53 60", "? 7"}},
		{"vlan,tos", []string{"7 8 10000", "0 0 67"}},
		{"direction", []string{"ingress 10007", "egress 60"}},
		{"service", []string{"6 443 10000 (9000 back)", "17 53 60", "17 ? 7"}},
		{"pair", []string{
			"2001:db8:0:1::1/128 2001:db8:0:2::1/128 10000 (9000 back)",
			"10.0.0.3/32 10.0.1.9/32 30", "10.0.0.2/32 10.0.1.1/32 20", "10.0.0.1/32 10.0.1.1/32 10", "? ? 7",
		}},
		{"iface,conversation", []string{
			"eth1 6 2001:db8:0:1::1/128 40000 2001:db8:0:2::1/128 443 10000 (9000 back)",
			"eth0 17 10.0.0.3/32 5000 10.0.1.9/32 53 30",
			"eth0 17 10.0.0.2/32 5000 10.0.1.1/32 53 20",
			"eth0 17 10.0.0.1/32 5000 10.0.1.1/32 53 10",
			"eth0 17 ? ? ? ? 7",
		}},
	} {
		a := ask(t, s, Query{By: parseBy(t, tt.by)})
		if diff := gocmp.Diff(tt.want, texts(a)); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", tt.by, diff)
		}
		if a.Total.Bytes != 10067 || a.Total.Packets != 8 {
			t.Errorf("by %s: total %+v", tt.by, a.Total)
		}
	}
}

// texts shows the keys and the bytes of each row.
func texts(a Answer) []string {
	var out []string
	for _, w := range a.Rows {
		line := ""
		for _, k := range a.By {
			line += keyText(k, &w) + " "
		}
		line += fmt.Sprint(w.Bytes)
		if w.Back.Bytes > 0 {
			line += fmt.Sprintf(" (%d back)", w.Back.Bytes)
		}
		out = append(out, line)
	}
	return out
}

func keyText(k Key, w *Row) string {
	if w.Unattributed && keyDefs[defOf(k.Name)].endpoint {
		return "?"
	}
	switch k.Name {
	case "src":
		return w.SrcPrefix.String()
	case "dst":
		return w.DstPrefix.String()
	}
	for _, f := range flow.Fields {
		if f.Name == k.Name {
			return string(f.Append(nil, &flow.Origin{}, &w.Record))
		}
	}
	return "no field " + k.Name
}

func TestICMPConversation(t *testing.T) {
	request := record(1, 2, 84)
	request.Proto, request.SrcPort, request.DstPort = 1, 7, 8<<8
	reply := request
	reply.Src, reply.Dst, reply.DstPort = request.Dst, request.Src, 0
	unreachable := request
	unreachable.SrcPort, unreachable.DstPort = 0, 3<<8
	s := New(Default())
	fill(s, 0, 1, request, reply, unreachable)
	a := ask(t, s, Query{By: parseBy(t, "conversation")})
	want := []string{
		"1 10.0.0.1/32 7 10.0.1.2/32 2048 168 (84 back)",
		"1 10.0.0.1/32 0 10.0.1.2/32 768 84",
	}
	if diff := gocmp.Diff(want, texts(a)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
		answer := ask(t, s, Query{Sort: tt.sort, Reverse: tt.reverse})
		var got []byte
		for _, row := range answer.Rows {
			b := row.Src.As4()
			got = append(got, b[3])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("sort %s, reverse %v: %v, want %v", tt.sort, tt.reverse, got, tt.want)
		}
	}
	answer := ask(t, s, Query{Limit: 2})
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
	if a := ask(t, s, Query{Filter: f}); a.Total.Bytes != 20 || a.Records != 1 || a.Groups != 1 {
		t.Errorf("%+v", a)
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"":                  `merge by "": there are flow, conversation, service, pair, session, peer`,
		"scr":               `merge by "scr": did you mean src?`,
		"proto/8":           "merge by proto/8: only src and dst can be cut to a prefix",
		"src/129":           "merge by src/129: write src/24 for IPv4, src/64 for IPv6 or src/24/48 for both",
		"src/33/64":         "merge by src/33/64: write src/24",
		"src/x":             "merge by src/x: write src/24",
		"src/24/":           "merge by src/24/: write src/24",
		"src,,dst":          `merge by ""`,
		"pair,conversation": "merge by conversation: not together with another fold",
	} {
		_, err := ParseBy(text)
		if err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("ParseBy(%q): %v, want %s", text, err, want)
		}
	}
	for sort, want := range map[string]string{
		"byte": `sort by "byte": did you mean bytes?`,
		"src":  `sort by "src": there are bytes, packets, wire_bytes, payload_bytes, records, rate, rtt, first, last, delay, server, server_p99, network, network_p99, delays, lost, reordered, duplicates, suspicious, proto`,
	} {
		_, err := New(Default()).Query(Query{By: parseBy(t, "proto"), Sort: sort})
		if err == nil || err.Error() != want {
			t.Errorf("sort %s: %v, want %s", sort, err, want)
		}
	}
}

func TestKeyText(t *testing.T) {
	for _, text := range []string{"src", "src/24", "src/64", "src/24/48", "src/0/32", "src/32/32", "dst/8/128", "dport", "src/24/32"} {
		by := parseBy(t, text)
		again := parseBy(t, by.Keys[0].String())
		if again.Keys[0] != by.Keys[0] {
			t.Errorf("%s is printed as %s, which is another key", text, by.Keys[0])
		}
	}
}

func TestFollow(t *testing.T) {
	s := New(Config{History: 4})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fill(s, 0, 1, record(1, 1, 1)) // ended before: not told

	answers, held := make(chan Answer), make(chan struct{})
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		done <- s.Follow(ctx, Query{Since: at(1000)}, func(a Answer) error {
			answers <- a
			<-held
			return nil
		})
	}()
	<-started
	// Until the follower waits, what ends counts as before it came.
	var first Answer
	for n := 1; ; n++ {
		fill(s, n, n+1, record(1, 1, 2))
		select {
		case first = <-answers:
		case <-time.After(10 * time.Millisecond):
			continue
		}
		break
	}
	if first.Total.Bytes != 2 || first.Intervals != 1 {
		t.Fatalf("%+v", first)
	}
	// While it is held, more end than are kept.
	for n := range 10 {
		fill(s, 100+n, 101+n, record(1, 1, uint64(100+n)))
	}
	close(held)
	var got []Answer
	for range 4 {
		got = append(got, <-answers)
	}
	if got[0].Missed == 0 || got[1].Missed != 0 || got[3].Total.Bytes != 109 {
		t.Errorf("missed %d, then %d; last has %d bytes", got[0].Missed, got[1].Missed, got[3].Total.Bytes)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow = %v", err)
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	s := New(Default())
	gone := errors.New("gone")
	done := make(chan error)
	go func() { done <- s.Follow(t.Context(), Query{}, func(Answer) error { return gone }) }()
	for {
		fill(s, 0, 1)
		select {
		case err := <-done:
			if !errors.Is(err, gone) {
				t.Errorf("Follow = %v", err)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	s := New(Config{History: 1000})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 200 {
				a, err := s.Query(Query{By: By{Keys: []Key{{"src", 24, 48}}}})
				if err != nil || a.Records > 0 && a.Total.Bytes != 10*a.Records {
					t.Errorf("%v, %d bytes in %d records", err, a.Total.Bytes, a.Records)
				}
			}
		})
	}
	for n := range 200 {
		var batch []flow.Record
		for i := range 50 {
			batch = append(batch, record(byte(i), byte(n), 10))
		}
		fill(s, n, n+1, batch...)
	}
	readers.Wait()
}

// Whatever a record holds, the store gives back.
func TestRowKeepsARecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord(t)
		got := keep(&want)
		if diff := gocmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// keep puts a record into an interval and takes it out again.
func keep(r *flow.Record) (got flow.Record) {
	iv := New(Default()).Begin(at(0))
	iv.iv.links = []link{{}}
	iv.iv.told.put(&flow.PDM{Sent: 1, Lost: -1}) // of another row
	iv.iv.rows = make([]row, 1)
	w := &iv.iv.rows[0]
	w.set(r, 1)
	iv.iv.links = append(iv.iv.links, link{r.Iface, r.Netns, r.IfIndex})
	w.pdm = iv.iv.told.put(r.PDM)
	w.record(iv.iv, &got, &flow.PDM{Server: flow.Delays{Buckets: make([]flow.DelayBucket, 3)}})
	return got
}

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
		a, err := s.Query(Query{By: By{Keys: []Key{{"dst", 32, 128}}}})
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
		Packets: u64("packets"), Bytes: u64("bytes"), PayloadBytes: u64("payload"), WireBytes: u64("wire"),
		Fragments: u64("fragments"), CEPackets: u64("ce"), First: moment("first"), Last: moment("last"),
		EndReason: flow.EndReason(u8("reason")), Unattributed: rapid.Bool().Draw(t, "unattributed"),
		RTT: flow.RTT{Responder: time.Duration(u32("responder")), Initiator: time.Duration(u32("initiator"))},
	}
	if rapid.Bool().Draw(t, "marked") {
		r.PDM = drawPDM(t)
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

func drawPDM(t *rapid.T) *flow.PDM {
	count := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	delays := func(name string) flow.Delays {
		var h inband.Histogram
		for _, ns := range rapid.SliceOfN(rapid.Uint64Range(0, 1<<40), 0, 5).Draw(t, name) {
			h.Add(ns)
		}
		return flow.DelaysOf(&h)
	}
	return &flow.PDM{
		Sent: count("sent"), Received: count("received"), Lost: rapid.Int64().Draw(t, "lost"),
		Reordered: count("reordered"), Duplicates: count("duplicates"),
		Suspicious: count("suspicious"), Discarded: count("discarded"),
		Server: delays("server"), Network: delays("network"),
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, flows := range []int{1 << 14, 1 << 20} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			s := New(Default())
			r := record(1, 1, 1)
			b.ReportAllocs()
			for b.Loop() {
				iv := s.Begin(at(0))
				for n := range flows {
					r.SrcPort = uint16(n)
					r.Bytes = uint64(n * 2654435761 & 0xffffff)
					iv.Add(&r)
				}
				iv.End(at(1))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*flows), "ns/record")
		})
	}
}

func BenchmarkQuery(b *testing.B) {
	s := New(Default())
	iv := s.Begin(at(0))
	for n := range 131072 {
		r := record(byte(n), byte(n>>8), uint64(n))
		r.SrcPort = uint16(n >> 8)
		iv.Add(&r)
	}
	iv.End(at(1))
	for _, by := range []string{"flow", "src/24", "proto"} {
		b.Run(by, func(b *testing.B) {
			q := Query{By: parseBy(b, by), Limit: 20}
			for b.Loop() {
				ask(b, s, q)
			}
		})
	}
}

// A field that is added to the record and forgotten in the row would vanish here.
func TestRowForgetsNoField(t *testing.T) {
	var want flow.Record
	fillEvery(t, reflect.ValueOf(&want).Elem())
	want.Family, want.Direction, want.Unattributed = 6, flow.Egress, false
	got := keep(&want)
	if diff := gocmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// fillEvery gives every field of a struct a value that is not zero.
func fillEvery(t *testing.T, v reflect.Value) {
	t.Helper()
	for f, fv := range v.Fields() {
		switch {
		case fv.Type() == reflect.TypeFor[netip.Addr]():
			fv.Set(reflect.ValueOf(netip.MustParseAddr("2001:db8::7")))
		case fv.Type() == reflect.TypeFor[time.Time]():
			fv.Set(reflect.ValueOf(time.Unix(1, 7)))
		case fv.Kind() == reflect.Struct:
			fillEvery(t, fv)
		case fv.Kind() == reflect.Pointer:
			fv.Set(reflect.New(fv.Type().Elem()))
			fillEvery(t, fv.Elem())
		case fv.Kind() == reflect.Slice:
			fv.Set(reflect.MakeSlice(fv.Type(), 1, 1))
			fillEvery(t, fv.Index(0))
		case fv.Kind() == reflect.String:
			fv.SetString("7")
		case fv.Kind() == reflect.Bool:
			fv.SetBool(true)
		case fv.CanInt():
			fv.SetInt(7)
		case fv.CanUint():
			fv.SetUint(7)
		default:
			t.Fatalf("%s: teach this test, and the row, the kind %s", f.Name, fv.Kind())
		}
	}
}

func TestRowSize(t *testing.T) {
	if got := unsafe.Sizeof(row{}); got > 152 {
		t.Errorf("a row takes %d octets: correct what Default says of a history", got)
	}
}

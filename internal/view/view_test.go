package view

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// records of many kinds, largest first.
func records() []flow.Record {
	tcp := flow.Record{
		Iface: "eth0", Direction: flow.Egress, Family: 6, Proto: 6, SrcPort: 50000, DstPort: 443,
		Src: netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666"), Dst: netip.MustParseAddr("2001:db8::1"),
		Counters: flow.Counters{Packets: 1_234_567, Bytes: 9_000_000_000}, First: epoch, Last: epoch.Add(9 * time.Second),
		RTT: flow.RTT{Responder: 8 * time.Millisecond, Initiator: 210 * time.Microsecond},
	}
	back := tcp
	back.Src, back.Dst, back.SrcPort, back.DstPort, back.Direction = tcp.Dst, tcp.Src, 443, 50000, flow.Ingress
	back.Bytes, back.Packets, back.RTT = 30_000_000, 600_000, flow.RTT{}
	udp := flow.Record{
		Iface: "eth0.100", Netns: "blue", Family: 4, Proto: 17, SrcPort: 5353, DstPort: 53, VLAN: 100,
		Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("198.51.100.2"),
		Counters: flow.Counters{Packets: 12, Bytes: 1234}, First: epoch, Last: epoch.Add(time.Second),
	}
	ping := udp
	ping.Proto, ping.SrcPort, ping.DstPort, ping.Bytes = 1, 77, 8<<8, 900
	odd := ping
	odd.DstPort, odd.Bytes = 40<<8|1, 800
	gre := udp
	gre.Proto, gre.SrcPort, gre.DstPort, gre.Bytes, gre.VLAN = 47, 0, 0, 700, 0
	lost := flow.Record{Iface: "eth0", Family: 6, Proto: 132, Counters: flow.Counters{Packets: 3, Bytes: 300}, Unattributed: true, First: epoch, Last: epoch}
	return []flow.Record{tcp, back, udp, ping, odd, gre, lost}
}

// answer asks a store that holds the records.
func answer(t *testing.T, by string, records []flow.Record) (Merging, api.Answer) {
	t.Helper()
	s := store.New(store.Default())
	iv := s.Begin(epoch)
	for i := range records {
		iv.Add(&records[i])
	}
	iv.End(epoch.Add(10 * time.Second))
	keys, err := query.ParseBy(by)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Query(context.Background(), query.Plan{By: keys})
	if err != nil {
		t.Fatal(err)
	}
	return NewMerging(keys), api.NewAnswer(a, flow.Origin{Host: "alpha"})
}

func TestTables(t *testing.T) {
	for _, tt := range []struct {
		by    string
		width int
		want  []string
	}{
		{"flow", 0, []string{
			"NETNS  IFACE     DIR  PROTO  SRC                                             DST                                             VLAN  PACKETS  BYTES   RATE     RTT",
			"       eth0      out  tcp    [2001:db8:1111:2222:3333:4444:5555:6666]:50000  [2001:db8::1]:443                                  -    1.23M  9.00G  8.00G  8.21ms",
			"       eth0      in   tcp    [2001:db8::1]:443                               [2001:db8:1111:2222:3333:4444:5555:6666]:50000     -     600k  30.0M  26.7M       -",
			"blue   eth0.100  in   udp    192.0.2.1:5353                                  198.51.100.2:53                                  100       12  1.23k  9.87k       -",
			"blue   eth0.100  in   icmp   192.0.2.1                                       198.51.100.2 echo                                100       12    900  7.20k       -",
			"blue   eth0.100  in   icmp   192.0.2.1                                       198.51.100.2 40/1                                100       12    800  6.40k       -",
			"blue   eth0.100  in   gre    192.0.2.1                                       198.51.100.2                                       -       12    700  5.60k       -",
			"       eth0      in   sctp   (unattributed)                                  (unattributed)                                     -        3    300  2.40k       -",
		}},
		{"flow", 110, []string{
			"NETNS  IFACE     DIR  PROTO  SRC                    DST                    VLAN  PACKETS  BYTES   RATE     RTT",
			"       eth0      out  tcp    [2001:db8:…666]:50000  [2001:db8::1]:443         -    1.23M  9.00G  8.00G  8.21ms",
			"       eth0      in   tcp    [2001:db8::1]:443      [2001:db8:…666]:50000     -     600k  30.0M  26.7M       -",
			"blue   eth0.100  in   udp    192.0.2.1:5353         198.51.100.2:53         100       12  1.23k  9.87k       -",
			"blue   eth0.100  in   icmp   192.0.2.1              198.51.100.2 echo       100       12    900  7.20k       -",
			"blue   eth0.100  in   icmp   192.0.2.1              198.51.100.2 40/1       100       12    800  6.40k       -",
			"blue   eth0.100  in   gre    192.0.2.1              198.51.100.2              -       12    700  5.60k       -",
			"       eth0      in   sctp   (unattributed)         (unattributed)            -        3    300  2.40k       -",
		}},
		{"conversation", 0, []string{
			"PROTO  CLIENT                                          SERVER             PACKETS  BYTES    FWD    REV   RATE     RTT",
			"tcp    [2001:db8:1111:2222:3333:4444:5555:6666]:50000  [2001:db8::1]:443    1.83M  9.03G  9.00G  30.0M  8.03G  8.21ms",
			"udp    192.0.2.1:5353                                  198.51.100.2:53         12  1.23k  1.23k      0  9.87k       -",
			"icmp   192.0.2.1                                       198.51.100.2 echo       12    900    900      0  7.20k       -",
			"icmp   192.0.2.1                                       198.51.100.2 40/1       12    800    800      0  6.40k       -",
			"gre    192.0.2.1                                       198.51.100.2            12    700    700      0  5.60k       -",
			"sctp   (unattributed)                                  (unattributed)           3    300    300      0  2.40k       -",
		}},
		{"src/24/32,vlan,tunnel,family,tos", 0, []string{
			"SRC             VLAN  TUNNEL  FAMILY  TOS  PACKETS  BYTES   RATE     RTT",
			"2001:db8::/32      -  none    IPv6    0x0    1.83M  9.03G  8.03G  8.21ms",
			"192.0.2.0/24     100  none    IPv4    0x0       36  2.93k  23.5k       -",
			"192.0.2.0/24       -  none    IPv4    0x0       12    700  5.60k       -",
			"(unattributed)     -  none    IPv6    0x0        3    300  2.40k       -",
		}},
		{"proto,dport", 0, []string{
			"PROTO  DPORT  PACKETS  BYTES   RATE     RTT",
			"tcp      443    1.23M  9.00G  8.00G  8.21ms",
			"tcp    50000     600k  30.0M  26.7M       -",
			"udp       53       12  1.23k  9.87k       -",
			"icmp    echo       12    900  7.20k       -",
			"icmp    40/1       12    800  6.40k       -",
			"gre        0       12    700  5.60k       -",
			"sctp       -        3    300  2.40k       -",
		}},
	} {
		m, a := answer(t, tt.by, records())
		var b bytes.Buffer
		if err := m.Table(m.Columns(a.Rows, nil), a.Rows).Write(&b, tt.width); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")); diff != "" {
			t.Errorf("by %s, width %d (-want +got):\n%s", tt.by, tt.width, diff)
		}
	}
}

// Rows of the API are shown as those of the store: nothing is lost on the way.
func TestTableOfDecodedRows(t *testing.T) {
	m, a := answer(t, "flow", records())
	var direct, decoded bytes.Buffer
	if err := m.Table(m.Columns(a.Rows, nil), a.Rows).Write(&direct, 0); err != nil {
		t.Fatal(err)
	}
	for i := range a.Rows {
		var row api.Row
		if err := row.UnmarshalJSON(a.Rows[i].JSON); err != nil {
			t.Fatal(err)
		}
		a.Rows[i] = row
	}
	if err := m.Table(m.Columns(a.Rows, nil), a.Rows).Write(&decoded, 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(direct.String(), decoded.String()); diff != "" {
		t.Errorf("(-store +API):\n%s", diff)
	}
}

// Every key has a column.
func TestEveryKeyHasAColumn(t *testing.T) {
	for _, doc := range query.KeyDocs() {
		by, err := query.ParseBy(doc.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range by.Keys {
			for _, c := range (Merging{keys: []query.Key{k}}).keyColumns() {
				if c.cell == nil || c.Name != k.Name {
					t.Errorf("no column for %s", k.Name)
				}
			}
		}
	}
}

// TestSortedByAnyCounter: what rows are sorted by is shown, once.
func TestSortedByAnyCounter(t *testing.T) {
	rows := []api.Row{{Row: query.Row{Record: flow.Record{Counters: flow.Counters{Bytes: 5000, CEPackets: 12}}}}}
	for sort, want := range map[string]string{"ce_packets": "CE_PACKETS", "bytes": "BYTES", "reordered": "REORD", "server": "", "proto": "", "": ""} {
		m := NewMerging(query.ByFlow()).SortedBy(sort)
		n := 0
		for _, c := range m.Columns(rows, nil) {
			if c.Title == want {
				n++
			}
		}
		if want != "" && n != 1 {
			t.Errorf("sorted by %s: %d columns %s of %v", sort, n, want, Titles(m.Columns(rows, nil)))
		}
	}
}

// TestAddressesShrinkLast: sums make room before an address is shortened, and stay
// where there is room.
func TestAddressesShrinkLast(t *testing.T) {
	long := records()[2:5]
	for i := range long {
		long[i].Src, long[i].Dst = netip.MustParseAddr("203.0.113.142"), netip.MustParseAddr("198.51.100.217")
		long[i].Proto, long[i].SrcPort, long[i].DstPort = 6, uint16(33180+i), 44344
		long[i].RTT = flow.RTT{Responder: time.Millisecond, Initiator: time.Millisecond}
		long[i].Netns, long[i].Iface, long[i].VLAN = "", "eth0", 0
	}
	m, a := answer(t, "flow", long)
	for width, want := range map[int]string{200: "PACKETS BYTES RATE RTT", 84: "PACKETS BYTES RTT", 80: "PACKETS BYTES", 70: "DST BYTES"} {
		f := Fit{Width: width}
		columns := f.Columns(m, m.Columns(a.Rows, nil), a.Rows)
		var b bytes.Buffer
		if err := m.Table(columns, a.Rows).Write(&b, width); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasSuffix(strings.Join(Titles(columns), " "), want) || strings.Contains(got, "…") || strings.Count(got, ":44344") != len(a.Rows) {
			t.Errorf("width %d, want %s and whole addresses:\n%s", width, want, got)
		}
	}
}

func TestColumnsThatWereShownStay(t *testing.T) {
	m, a := answer(t, "flow", records()[2:3])
	first := Titles(m.Columns(a.Rows, nil))
	if strings.Contains(strings.Join(first, " "), "RTT") {
		t.Errorf("columns %v, though no row has a round trip", first)
	}
	if kept := Titles(m.Columns(a.Rows, []string{"RTT"})); kept[len(kept)-1] != "RTT" {
		t.Errorf("columns %v, though RTT was shown before", kept)
	}
}

// TestFlowsOfHosts: rows by flow name their host where there are several, and where these were shown before.
func TestFlowsOfHosts(t *testing.T) {
	m := NewMerging(query.ByFlow())
	one, other := api.Row{Row: query.Row{Host: "alpha"}}, api.Row{Row: query.Row{Host: "beta"}}
	for _, tt := range []struct {
		rows []api.Row
		keep []string
		want bool
	}{
		{[]api.Row{one, one}, nil, false},
		{[]api.Row{one, other}, nil, true},
		{[]api.Row{one}, []string{"HOST"}, true},
		{nil, nil, false},
	} {
		columns := m.Columns(tt.rows, tt.keep)
		if got := columns[0].Title == "HOST"; got != tt.want {
			t.Errorf("%d rows, %v shown before: first column %s", len(tt.rows), tt.keep, columns[0].Title)
		}
	}
}

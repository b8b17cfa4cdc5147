package view

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/query"
)

// delays are n equal ones and then those of the tail, in milliseconds.
func delays(n int, ms float64, tail ...float64) flow.Delays {
	var h inband.Histogram
	for range n {
		h.Add(uint64(ms * 1e6))
	}
	for _, t := range tail {
		h.Add(uint64(t * 1e6))
	}
	return flow.DelaysOf(&h)
}

func TestVerdicts(t *testing.T) {
	const echo = 128 << 8
	for _, tt := range []struct {
		by           string
		sport, dport uint16 // of what is received
		reported     *flow.PDM
		want         string
	}{
		{"session", 443, 50000, nil, "not marked"},
		{"session", 443, 50000, &flow.PDM{Sent: 3}, "no marks from the peer"},
		{"flow", 443, 50000, &flow.PDM{Sent: 3}, "sent: see the other direction"},
		{"session", 443, 50000, &flow.PDM{Received: 3}, "no request and answer"},
		{"session", 443, 50000, &flow.PDM{Received: 3, Lost: 1}, "no request and answer, 25 % lost"},
		{"session", 443, 50000, &flow.PDM{Received: 9, Server: delays(9, 41), Network: delays(9, 8)}, "server 41ms of 49ms"},
		{"session", 443, 50000, &flow.PDM{Received: 9, Server: delays(9, 2), Network: delays(9, 80)}, "network 80ms of 82ms"},
		{"session", 443, 50000, &flow.PDM{Received: 9, Server: delays(9, 5), Network: delays(9, 5)}, "both: server 5ms, network 5ms"},
		{"session", 443, 50000, &flow.PDM{Received: 9, Server: delays(9, 41)}, "server 41ms of 41ms"},
		{"session", 443, 50000, &flow.PDM{Received: 9, Network: delays(9, 8)}, "network 8ms of 8ms"},
		{"session", 443, 50000, &flow.PDM{Received: 990, Lost: 10, Server: delays(9, 41), Network: delays(9, 8)}, "server 41ms of 49ms, 1 % lost"},
		{"session", 443, 50000, &flow.PDM{Received: 991, Lost: 9, Server: delays(9, 41), Network: delays(9, 8)}, "server 41ms of 49ms"},
		{"session", 443, 50000, &flow.PDM{Received: 9, Lost: -5, Server: delays(9, 41), Network: delays(9, 8)}, "server 41ms of 49ms"},
		{"session", 443, 50000, &flow.PDM{Received: 9, Server: delays(9, 2), Network: delays(10, 80)}, "network 80ms of 82ms"},
		{"session", 50000, 443, &flow.PDM{Received: 9, Server: delays(9, 5000), Network: delays(9, 10)}, "client 5s of 5.01s"},
		{"flow", 443, 50000, &flow.PDM{Received: 9, Server: delays(9, 41), Network: delays(9, 8)}, "server 41ms of 49ms"},
		{"peer/64", 443, 50000, &flow.PDM{Received: 9, Server: delays(9, 41), Network: delays(9, 8)}, "peer 41ms of 49ms"},
		{"conversation", 443, 50000, &flow.PDM{Received: 9, Server: delays(9, 41), Network: delays(9, 8)}, "peer 41ms of 49ms"},
		{"peer_service", 8080, 50000, &flow.PDM{Received: 9, Server: delays(9, 41), Network: delays(9, 8)}, "server 41ms of 49ms"},
		{"peer_service", 50000, 443, &flow.PDM{Received: 9, Server: delays(9, 41), Network: delays(9, 8)}, "client 41ms of 49ms"},
		{"local_service", 50000, 443, &flow.PDM{Received: 9, Server: delays(9, 41), Network: delays(9, 8)}, "client 41ms of 49ms"},
		{"session", 7, echo, &flow.PDM{Received: 9, Server: delays(9, 1), Network: delays(9, 99)}, "network 99ms of 100ms"},
	} {
		r := flow.Record{
			Iface: "eth0", Family: 6, Proto: 6, SrcPort: tt.sport, DstPort: tt.dport, PDM: tt.reported,
			Src: netip.MustParseAddr("2001:db8::2"), Dst: netip.MustParseAddr("2001:db8::1"), First: epoch, Last: epoch,
		}
		if tt.dport == echo {
			r.Proto = 58
		}
		m, a := answer(t, tt.by, []flow.Record{r})
		if got := m.Verdict(&a.Rows[0]); got != tt.want {
			t.Errorf("by %s, %+v: %q, want %q", tt.by, tt.reported, got, tt.want)
		}
	}
}

// Who began decides which part the peer plays, whatever the ports.
func TestVerdictByInitiator(t *testing.T) {
	for _, tt := range []struct {
		by           string
		sport, dport uint16
		initiator    flow.Initiator // of what is received
		want         string
	}{
		{"session", 60999, 40000, flow.InitiatorDst, "server 41ms of 49ms"},
		{"session", 443, 40000, flow.InitiatorSrc, "client 41ms of 49ms"},
		{"flow", 60999, 443, flow.InitiatorDst, "server 41ms of 49ms"},
		{"peer_service", 60999, 40000, flow.InitiatorDst, "server 41ms of 49ms"},
		{"local_service", 443, 60999, flow.InitiatorSrc, "client 41ms of 49ms"},
	} {
		r := flow.Record{
			Family: 6, Proto: 6, SrcPort: tt.sport, DstPort: tt.dport, Initiator: tt.initiator, InitiatorBy: flow.EvidenceHandshake,
			Src: netip.MustParseAddr("2001:db8::2"), Dst: netip.MustParseAddr("2001:db8::1"), First: epoch, Last: epoch,
			PDM: &flow.PDM{Received: 9, Server: delays(9, 41), Network: delays(9, 8)},
		}
		sent := r
		sent.Direction, sent.Src, sent.Dst, sent.SrcPort, sent.DstPort = flow.Egress, r.Dst, r.Src, r.DstPort, r.SrcPort
		sent.Initiator, sent.PDM = r.Initiator.Opposite(), &flow.PDM{Sent: 9}
		records := []flow.Record{r, sent}
		if tt.by == "flow" {
			records = records[:1]
		}
		m, a := answer(t, tt.by, records)
		if got := m.Verdict(&a.Rows[0]); got != tt.want {
			t.Errorf("by %s, ports %d and %d, %s began: %q, want %q", tt.by, tt.sport, tt.dport, tt.initiator, got, tt.want)
		}
	}
}

// When the slowest lose their time elsewhere than most, the verdict says so.
func TestVerdictOfTheSlowest(t *testing.T) {
	for _, tt := range []struct {
		most, worst string
		reported    *flow.PDM
	}{
		{"network ", ", at worst server ", &flow.PDM{Received: 9, Server: delays(90, 2, 700, 700), Network: delays(92, 80)}},
		{"server ", ", at worst network ", &flow.PDM{Received: 9, Server: delays(92, 41), Network: delays(90, 8, 500, 500)}},
	} {
		r := flow.Record{
			Family: 6, Proto: 6, SrcPort: 443, DstPort: 50000, PDM: tt.reported,
			Src: netip.MustParseAddr("2001:db8::2"), Dst: netip.MustParseAddr("2001:db8::1"), First: epoch, Last: epoch,
		}
		m, a := answer(t, "session", []flow.Record{r})
		if got := m.Verdict(&a.Rows[0]); !strings.HasPrefix(got, tt.most) || !strings.Contains(got, tt.worst) {
			t.Errorf("%q, want %s…%s…", got, tt.most, tt.worst)
		}
	}
}

// Rows of the API are shown as those of the store, histograms and all.
func TestDelaysOfDecodedRows(t *testing.T) {
	r := flow.Record{
		Iface: "eth0", Family: 6, Proto: 6, SrcPort: 443, DstPort: 50000, First: epoch, Last: epoch.Add(time.Second),
		Src: netip.MustParseAddr("2001:db8::2"), Dst: netip.MustParseAddr("2001:db8::1"),
		PDM: &flow.PDM{
			Received: 97, Lost: 3, Reordered: 1, Duplicates: 2, Suspicious: 4, Discarded: 5,
			Server: delays(90, 2, 700, 701), Network: delays(3, 80),
		},
	}
	sent := r
	sent.Direction, sent.Src, sent.Dst, sent.SrcPort, sent.DstPort = flow.Egress, r.Dst, r.Src, r.DstPort, r.SrcPort
	sent.PDM = &flow.PDM{Sent: 99}
	for _, by := range []string{"session", "flow", "peer/64"} {
		m, a := answer(t, by, []flow.Record{r, sent})
		var direct, decoded bytes.Buffer
		write := func(to *bytes.Buffer) {
			if err := m.Table(m.DelayColumns(a.Rows, nil), a.Rows).Write(to, 0); err != nil {
				t.Fatal(err)
			}
		}
		write(&direct)
		for i := range a.Rows {
			var row api.Row
			if err := row.UnmarshalJSON(a.Rows[i].JSON); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(a.Rows[i].PDM, row.PDM, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("by %s (-store +API):\n%s", by, diff)
			}
			a.Rows[i] = row
		}
		write(&decoded)
		if diff := cmp.Diff(direct.String(), decoded.String()); diff != "" {
			t.Errorf("by %s (-store +API):\n%s", by, diff)
		}
		if by == "session" && !strings.Contains(direct.String(), "PEER") {
			t.Errorf("no peer in:\n%s", &direct)
		}
	}
	if m := NewMerging(query.ByFlow()); m.fold != query.FoldNone {
		t.Error("flows are folded")
	}
}

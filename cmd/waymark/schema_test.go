package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/view"
)

// flatten joins the names of inner objects with dots.
func flatten(v map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range v {
		if inner, ok := value.(map[string]any); ok {
			for k, x := range flatten(inner) {
				out[name+"."+k] = x
			}
			continue
		}
		out[name] = value
	}
	return out
}

// fullAnswer has rows in which every field is set, both ways and on two interfaces.
func fullAnswer(t *testing.T, by string) (api.Answer, query.By) {
	t.Helper()
	keys, err := query.ParseBy(by)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	var h inband.Histogram
	h.Add(5e6)
	r := flow.Record{
		Iface: "eth0", Netns: "blue", IfIndex: 2, Family: 6, Proto: 6, SrcPort: 50000, DstPort: 443,
		Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2"),
		VLAN: 1, InnerVLAN: 2, Tunnel: flow.TunnelVXLAN, VNI: 3, TOS: 4, TCPFlags: 5, FlowLabel: 6, TTLMin: 7, TTLMax: 8,
		Counters: flow.Counters{Packets: 9, Bytes: 10, PayloadBytes: 11, WireBytes: 12, Fragments: 13, CEPackets: 14}, First: at, Last: at.Add(time.Second),
		EndReason: flow.EndReasonIdleTimeout, Initiator: flow.InitiatorSrc, InitiatorBy: flow.EvidenceHandshake,
		RTT: flow.RTT{Responder: 15, Initiator: 16},
		PDM: &flow.PDM{Sent: 17, Received: 18, Lost: 19, Reordered: 20, Duplicates: 21, Suspicious: 22, Discarded: 23, Server: flow.DelaysOf(&h), Network: flow.DelaysOf(&h)},
	}
	out := r
	out.Iface, out.IfIndex, out.Direction = "eth1", 3, flow.Egress
	back := out
	back.Src, back.Dst, back.SrcPort, back.DstPort, back.Direction, back.Initiator = r.Dst, r.Src, 443, 50000, flow.Ingress, flow.InitiatorDst
	s := store.New(store.Default())
	iv := s.Begin(at)
	for _, x := range []*flow.Record{&r, &out, &back} {
		iv.Add(x)
	}
	iv.End(at.Add(2 * time.Second))
	a, err := s.Query(context.Background(), query.Plan{By: keys})
	if err != nil {
		t.Fatal(err)
	}
	return api.NewAnswer(a, flow.Origin{Host: "gw", Sampling: 100}), keys
}

// jsonNames are the names, joined with dots, that the JSON of any row has.
func jsonNames(t *testing.T, lines [][]byte) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, line := range lines {
		var v map[string]any
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		maps.Copy(all, flatten(v))
	}
	return all
}

// TestOneSchema: JSON, CSV, tables, exporters and decode call one fact by one
// name, all of which the table of fields has.
func TestOneSchema(t *testing.T) {
	known := map[string]bool{"loss": true, "verdict": true}
	for i := range flow.Fields {
		known[flow.Fields[i].Name] = true
	}
	for _, f := range api.ExtraFields() {
		known[f.Name] = true
	}
	sortable := query.SortNames()

	for _, by := range []string{"flow", "transit", "conversation", "session", "in,out", "src/48,tos"} {
		for _, verb := range []*flowsCommand{
			{answers: answers{verb: "flows", columns: view.Merging.Columns}},
			{answers: answers{verb: "delays", columns: view.Merging.DelayColumns, extras: view.Merging.DelayExtras}},
		} {
			a, keys := fullAnswer(t, by)
			verb.request.By = by
			if verb.extras != nil {
				verb.judge(&a)
			}
			var lines [][]byte
			for _, w := range a.Rows {
				lines = append(lines, w.JSON)
			}
			var b bytes.Buffer
			if err := verb.printCSV(&b, keys, a); err != nil {
				t.Fatal(err)
			}
			table, err := csv.NewReader(&b).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			inCSV := map[string]bool{}
			for n, name := range table[0] {
				if !known[name] {
					t.Errorf("%s by %s: CSV has %s, which no table of fields has", verb.verb, by, name)
				}
				if slices.ContainsFunc(table[1:], func(row []string) bool { return row[n] != "" }) {
					inCSV[name] = true
				}
			}
			inJSON := jsonNames(t, lines)
			for name := range inJSON {
				if !inCSV[name] {
					t.Errorf("%s by %s: JSON has %s, CSV has not", verb.verb, by, name)
				}
			}
			for name := range inCSV {
				if _, ok := inJSON[name]; !ok {
					t.Errorf("%s by %s: CSV has %s, JSON has not", verb.verb, by, name)
				}
			}
			for _, c := range verb.columns(view.NewMerging(keys), a.Rows, nil) {
				if c.Name != "" && !known[c.Name] && !slices.Contains(sortable, c.Name) {
					t.Errorf("%s by %s: the table has %s, nothing else has", verb.verb, by, c.Name)
				}
				if c.Name == "" && !slices.Contains([]string{"FWD", "REV"}, c.Title) {
					t.Errorf("%s by %s: column %s has no name", verb.verb, by, c.Title)
				}
			}
		}
	}

	// The exporter, whose records have all fields but those of rows.
	a, _ := fullAnswer(t, "flow")
	o := flow.Origin{Host: "gw", Sampling: 100}
	exported := jsonNames(t, [][]byte{jsonl.Append(nil, &o, &a.Rows[0].Record)})
	rows := jsonNames(t, [][]byte{a.Rows[0].JSON})
	for name := range exported {
		if _, ok := rows[name]; !ok || !known[name] {
			t.Errorf("the exporter has %s, rows by flow have not", name)
		}
	}
	for name := range rows {
		if _, ok := exported[name]; !ok && !slices.ContainsFunc(api.ExtraFields(), func(f api.RowField) bool { return f.Name == name }) {
			t.Errorf("rows by flow have %s, the exporter has not", name)
		}
	}
}

// TestDecodeSchema: decode has the names of flow records and of waymark marks, and
// of its own only what they have not.
func TestDecodeSchema(t *testing.T) {
	own := map[string]bool{}
	for _, name := range strings.Fields(`frame delta_tlr scale_dtlr delta_tls scale_dtls path_ns error`) {
		own[name] = true
	}
	marks := jsonNames(t, [][]byte{must(json.Marshal(pdmservice.Mark{Arrival: "first", Suspicious: "x", Server: 1, Network: 1}))})
	fields := map[string]bool{}
	for i := range flow.Fields {
		fields[flow.Fields[i].Name] = true
	}
	for _, c := range packetColumns {
		if _, ok := marks[c.name]; !ok && !own[c.name] && !fields[c.name] {
			t.Errorf("packet: %s is a name of decode alone", c.name)
		}
	}
	for _, c := range flowColumns {
		name := strings.Replace(c.name, "pdm.back.", "pdm.", 1) // the way back has the same names
		for _, there := range []string{"client", "to_server", "to_client"} {
			name = strings.Replace(name, "pdm."+there+".", "pdm.server.", 1) // so have other delays
		}
		if !fields[name] && !slices.Contains([]string{"pdm.burst_copies", "pdm.late", "pdm.restarts", "pdm.unpaired"}, name) {
			t.Errorf("flow: %s is a name of decode alone", c.name)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

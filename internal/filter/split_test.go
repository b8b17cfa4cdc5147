package filter

import (
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
)

// What is of records and what of rows.
func TestSplit(t *testing.T) {
	for _, tt := range []struct{ text, records, rows, err string }{
		{"", "", "", ""},
		{"tcp", "proto tcp", "", ""},
		{"bytes > 1M", "", "bytes > 1000000", ""},
		{"bytes > 1M and tcp", "proto tcp", "bytes > 1000000", ""},
		{"tcp and (dport 443 and (packets < 9 and ipv6))", "proto tcp and dport 443 and family 6", "packets < 9", ""},
		{"rtt > 50ms and server > 1ms and pdm", "pdm", "rtt.handshake_ns > 50ms and pdm.server.p50_ns > 1ms", ""},
		{"bytes > 1M or not packets < 10", "", "bytes > 1000000 or not packets < 10", ""},
		{"tcp or udp", "proto tcp or proto udp", "", ""},
		{"tcp and (udp or bytes > 1M)", "proto tcp", "proto udp or bytes > 1000000", `"proto udp or bytes > 1000000"`},
		{"not (udp and bytes > 1M)", "", "not (proto udp and bytes > 1000000)", `"not (proto udp and bytes > 1000000)"`},
	} {
		f, err := Parse(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		for _, whole := range []bool{true, false} {
			records, rows, err := f.Split(whole)
			if tt.err != "" && !whole {
				if err == nil || !strings.Contains(err.Error(), tt.err+" joins a test of each record with a test of a row's sums") {
					t.Errorf("%s: %v", tt.text, err)
				}
				continue
			}
			if err != nil || records.String() != tt.records || rows.String() != tt.rows {
				t.Errorf("%s, of flows %v: %q and %q, %v; want %q and %q", tt.text, whole, records, rows, err, tt.records, tt.rows)
			}
		}
	}
}

// Every field that a record has one of, whatever its packets, is of records.
func TestSums(t *testing.T) {
	sums := 0
	for i := range fields {
		f := &fields[i]
		if f.sum {
			sums++
		}
		if f.sum && f.kind != kindNumber && f.kind != kindDuration {
			t.Errorf("%s is no sum", f.name)
		}
	}
	for _, name := range []string{"packets", "bytes", "wire_bytes", "payload_bytes", "fragments", "ce_packets", "rtt", "pdm.lost", "server"} {
		if f := fieldNamed(name); f == nil || !f.sum {
			t.Errorf("%s is a sum", name)
		}
	}
	if empty := (Filter{}); sums == 0 || !empty.Match(&flow.Record{}) {
		t.Errorf("%d sums", sums)
	}
}

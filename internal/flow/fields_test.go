package flow

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFields(t *testing.T) {
	const want = "host iface netns direction family proto src sport dst dport vlan tos tcp_flags packets bytes wire_bytes first last end_reason"
	var names []string
	notInIPFIX := map[string]bool{ // tshark takes templates of up to 60 fields
		"pdm.server.p90_ns": true, "pdm.server.buckets": true, "pdm.network.p90_ns": true, "pdm.network.buckets": true,
		"ioam.delay.mean_ns": true, // follows from the sum
		"drops.by":           true, // the id says it
		"forwarded":          true, // there are both interfaces
		"other_iface":        true, // one of these
	}
	seen := map[string]bool{}
	for _, f := range Fields {
		names = append(names, f.Name)
		if seen[f.Name] {
			t.Errorf("%s is defined twice", f.Name)
		}
		seen[f.Name] = true
		if f.Doc == "" || (len(f.IPFIX) == 0) != notInIPFIX[f.Name] || f.Append == nil {
			t.Errorf("%s lacks a sentence, an information element or its text", f.Name)
		}
		if f.Kind.Number() != (f.Max > 0) || (f.Kind == Name) != (len(f.Values) > 0) {
			t.Errorf("%s: range does not fit the kind", f.Name)
		}
	}
	for i := range counters {
		var r Record
		r.words()[i] = 1
		if n := countWhere(CounterFields, func(f *Field) bool { return f.Uint(&r) == 1 }); n != 1 {
			t.Errorf("counter %d has %d fields", i, n)
		}
	}
	if got := strings.Join(names, " "); !strings.HasPrefix(got, want) {
		t.Errorf("fields are %s\nwant them to start %s", got, want)
	}
}

func TestAppendTime(t *testing.T) {
	const layout = "2006-01-02T15:04:05.000000000Z"
	for _, at := range []time.Time{
		{},
		time.Unix(0, 0),
		time.Unix(-1, 999999999),
		time.Date(2000, 2, 29, 23, 59, 59, 1, time.UTC),
		time.Date(2100, 3, 1, 0, 0, 0, 0, time.FixedZone("", 5*3600)),
		time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, want := string(appendTime(nil, at)), at.UTC().Format(layout); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns"))
		if got, want := string(appendTime(nil, at)), at.UTC().Format(layout); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

func TestNames(t *testing.T) {
	for _, d := range []Direction{Ingress, Egress} {
		if got, err := ParseDirection(d.String()); got != d || err != nil {
			t.Errorf("%s: %v %v", d, got, err)
		}
	}
	for e := EndReasonNone; e <= EndReasonLackOfResources; e++ {
		if got, err := ParseEndReason(e.String()); got != e || err != nil {
			t.Errorf("%s: %v %v", e, got, err)
		}
	}
	for tu := TunnelNone; tu <= TunnelIPIP; tu++ {
		if got, err := ParseTunnel(tu.String()); got != tu || err != nil {
			t.Errorf("%s: %v %v", tu, got, err)
		}
	}
	if _, err := ParseDirection("sideways"); err == nil || !strings.Contains(err.Error(), "ingress") {
		t.Errorf("an unknown name must be refused with the known ones, got %v", err)
	}
	if got := EndReason(200).String(); got != "unknown" {
		t.Errorf("EndReason(200) is %q", got)
	}
}

func countWhere(fields []Field, is func(*Field) bool) (n int) {
	for i := range fields {
		if is(&fields[i]) {
			n++
		}
	}
	return n
}

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
)

// TestSummaryOfHosts: an answer says what it counts of flows that several hosts saw, and warns of what it does not cover.
func TestSummaryOfHosts(t *testing.T) {
	a := api.Answer{
		From: time.Unix(0, 0), To: time.Unix(60, 0), Intervals: 1, Total: flow.Counters{Packets: 67}, Repeated: flow.Counters{Packets: 441},
		SharedFlows: 5, UnsureFlows: 1, BehindFlows: 2,
	}
	f := &flowsCommand{}
	for _, want := range []string{"67 packets", "; 441 packets seen on a further interface or host, counted once", "; which host 1 flow passed first is not certain", "; of 2 flows, a further host counted more packets"} {
		if got := f.summary(a); !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	a.SharedFlows, a.UnsureFlows, a.BehindFlows = 0, 0, 0
	if got := f.summary(a); !strings.HasSuffix(got, "; 441 packets seen on a further interface, counted once") {
		t.Error(got)
	}
	a.Partial, a.Lost, a.EachHost = "the time ended", 3, "packets count at each host that saw them: too many flows"
	var stderr bytes.Buffer
	if err := warn(&stderr, a); err != nil {
		t.Fatal(err)
	}
	want := `waymark: the answer is partial: the time ended
waymark: 3 scan intervals of that time are missing: the history could not keep or read them
waymark: packets count at each host that saw them: too many flows
`
	if stderr.String() != want {
		t.Errorf("%s", &stderr)
	}
}

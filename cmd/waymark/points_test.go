package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/store"
)

// serveAPI serves the API until the test ends.
func serveAPI(t *testing.T, deps api.Deps) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent.sock")
	deps.Origin, deps.History = flow.Origin{Host: "alpha", Sampling: 1}, store.New(store.Default())
	server := api.New(api.Config{Socket: socket}, deps)
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// TestPoints: ways as text and JSON, with notes on them; an agent refuses, and names the remedy.
func TestPoints(t *testing.T) {
	at := func(host, iface string) []hops.Point {
		return []hops.Point{{Node: hops.Node{Host: host}, Iface: iface}}
	}
	answer := hops.Ways{
		Flows: []hops.Way{
			{
				Proto: 17, Src: netip.MustParseAddr("2001:db8::1"), Sport: 4000, Dst: netip.MustParseAddr("2001:db8::2"), Dport: 53,
				Path: hops.Path{Parts: []hops.Part{
					{Kind: hops.OnLink, From: at("alpha", "eth0"), To: at("porthos", "eth0"), Sent: 1000, Received: 1000},
					{Kind: hops.InHost, From: at("porthos", "eth0"), To: at("porthos", "eth1"), Sent: 1000, Received: 993, Lost: 7, Dropped: 7},
					{Kind: hops.OnLink, From: at("porthos", "eth1"), To: append(at("beta", "eth0"), at("gamma", "eth\x1b0")...), Sent: 993, Received: 995, Gained: 2, Margin: 3, Hidden: 1},
				}, Unconfirmed: []string{"clocks decide"}, Notes: []string{"it is not followed"}},
			},
			{Proto: 1, Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), Dport: 8 << 8},
		},
		Others: 1, Incomplete: []string{"beta: 2 intervals could not be kept or read"},
	}
	var asked api.WhyRequest
	socket := serveAPI(t, api.Deps{Points: func(_ context.Context, r api.WhyRequest) (any, error) { asked = r; return answer, nil }})
	run := func(args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		code = execute(append([]string{"points", "--socket", socket}, args...), strings.NewReader(""), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	want := `udp [2001:db8::1]:4000 > [2001:db8::2]:53
PART  FROM          TO                      SENT  RECEIVED  LOST  NOTE
link  alpha eth0    porthos eth0            1000      1000     0
host  porthos eth0  porthos eth1            1000       993     7  7 dropped by rules
link  porthos eth1  beta eth0, gamma eth·0   993       995  0 ±3  2 more received than sent; 1 router without an agent
  order not certain: clocks decide
  it is not followed

icmp 192.0.2.1 > 192.0.2.2 echo
`
	code, out, errs := run("udp", "and", "port", "53")
	if code != command.ExitOK || asked.Filter != "udp and port 53" {
		t.Errorf("%d, asked for %+v", code, asked)
	}
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	if got := strings.Join(lines, "\n") + "\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if want := "waymark: records of beta: 2 intervals could not be kept or read: do not compare its counts\n2 flows, 1 of them with loss; 1 more flow not shown: filter, or --limit 0\n"; errs != want {
		t.Errorf("%s", errs)
	}
	var back hops.Ways
	if code, out, _ := run("-o", "json", "--limit", "1"); code != command.ExitOK || json.Unmarshal([]byte(out), &back) != nil || len(back.Flows) != 1 || back.Others != 2 || back.Flows[0].Parts[1].Lost != 7 {
		t.Errorf("%d %s", code, out)
	}
	if code, out, _ := run("-o", "jsonl"); code != command.ExitOK || strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, `{"proto":17,"src":"2001:db8::1"`) {
		t.Errorf("%d %s", code, out)
	}
	answer = hops.Ways{Flows: []hops.Way{}}
	if code, out, errs := run(); code != command.ExitOK || out != "" || !strings.HasPrefix(errs, "no flow matches in that time") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	for want, args := range map[string][]string{
		"--since soon: write a duration": {"--since", "soon"},
		"exchange them":                  {"--since", "5m", "--until", "1h"},
		"expected a test":                {"tcp", "and"},
		"write how many flows to show":   {"--limit", "-1"},
		"want one of table, json, jsonl": {"-o", "csv"},
	} {
		if code, _, errs := run(args...); code != command.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: %d %s, want %s", args, code, errs, want)
		}
	}
	socket = serveAPI(t, api.Deps{})
	if code, _, errs := run("udp"); code != command.ExitFailure || !strings.Contains(errs, "an agent has the records of one host") || !strings.Contains(errs, "--socket /run/waymark-analyze/analyze.sock") {
		t.Errorf("%d %s", code, errs)
	}
}

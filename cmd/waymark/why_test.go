package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/verdict"
)

// whyAgent is the API of an agent that answers why in one way.
func whyAgent(t *testing.T, answer verdict.Answer) (socket string) {
	t.Helper()
	return serveAPI(t, api.Deps{Why: func(context.Context, api.WhyRequest) (any, error) { return answer, nil }})
}

// TestWhy: verdicts as sentences, JSON and JSON lines, and an answer without any; mistakes are usage
// errors that name the remedy.
func TestWhy(t *testing.T) {
	found := verdict.Answer{
		Host: "alpha", From: time.Unix(0, 0), To: time.Unix(600, 0), Summary: "2 verdicts",
		Verdicts: []verdict.Verdict{
			{
				Kind: verdict.PathLoss, Severity: verdict.High, Text: "The link loses 2 %", Evidence: []string{"9 of the flows lose packets"},
				Others: 1, Command: "waymark flows", Where: verdict.Where{Src: netip.MustParseAddr("192.0.2.1")},
				Consequences: []verdict.Consequence{{Kind: verdict.Retransmissions, Text: "This host sends 2 % again"}},
			},
			{Kind: verdict.GateDrops, Severity: verdict.Low, Text: "The gate drops\x1b[31m"},
		},
		Examined: []verdict.Matter{},
	}
	socket := whyAgent(t, found)
	run := func(args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		code = execute(append([]string{"why", "--socket", socket}, args...), strings.NewReader(""), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	want := `1. path_loss, high: The link loses 2 %.
   9 of the flows lose packets
   from it follows retransmissions: This host sends 2 % again
   and 1 more verdict like it
   waymark flows
2. gate_drops, low: The gate drops·[31m.
`
	if code, out, errs := run(); code != command.ExitOK || out != want || errs != "2 verdicts\n" {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
	var back verdict.Answer
	if code, out, _ := run("-o", "json", "--since", "1h"); code != command.ExitOK || json.Unmarshal([]byte(out), &back) != nil || len(back.Verdicts) != 2 ||
		back.Verdicts[0].Where != found.Verdicts[0].Where || strings.Contains(out, `"dst"`) {
		t.Errorf("%d %s", code, out)
	}
	if code, out, _ := run("-o", "jsonl", "tcp"); code != command.ExitOK || strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, `{"kind":"path_loss"`) {
		t.Errorf("%d %s", code, out)
	}
	for want, args := range map[string][]string{
		"--since soon: write a duration": {"--since", "soon"},
		"exchange them":                  {"--since", "5m", "--until", "1h"},
		"expected a test":                {"tcp", "and"},
		"two filters":                    {"tcp", "--filter", "udp"},
		"want one of table, json, jsonl": {"-o", "csv"},
		"unknown flag --limit":           {"--limit", "3"},
	} {
		if code, _, errs := run(args...); code != command.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: %d %s, want %s", args, code, errs, want)
		}
	}
	var stderr bytes.Buffer
	if code := execute([]string{"why", "--socket", filepath.Join(t.TempDir(), "none")}, strings.NewReader(""), &bytes.Buffer{}, &stderr); code != command.ExitFailure || !strings.Contains(stderr.String(), "is the agent running?") {
		t.Errorf("%d %s", code, &stderr)
	}
}

// TestWhyNothing: that nothing is wrong is said with what was examined.
func TestWhyNothing(t *testing.T) {
	socket := whyAgent(t, verdict.Answer{
		Summary: "No server, path, link or rule stands out", Verdicts: []verdict.Verdict{},
		Examined: []verdict.Matter{{Kind: verdict.Unanswered, Count: 12, What: "services"}, {Kind: verdict.LinkFull, What: "links", Note: "no speed"}},
	})
	var stdout bytes.Buffer
	if code := execute([]string{"why", "--socket", socket}, strings.NewReader(""), &stdout, &bytes.Buffer{}); code != command.ExitOK {
		t.Error(code)
	}
	want := `No server, path, link or rule stands out
RULE        COUNT  EXAMINED
unanswered     12  services
link_full       0  links; no speed
`
	if got := stdout.String(); got != want {
		t.Errorf("%s", got)
	}
}

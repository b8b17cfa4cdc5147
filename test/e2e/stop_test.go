package e2e

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/test/await"
)

// TestRunForAWhile: an agent that is started with nothing but --for counts where
// the default route leads, answers before its first interval is over, and ends by
// itself with all that it counted.
func TestRunForAWhile(t *testing.T) {
	t.Parallel()
	h := oneLink(t)
	must(t, h, "ip", "addr", "add", "192.0.2.1/24", "dev", "near")
	must(t, h, "ip", "route", "add", "default", "via", "192.0.2.2")
	const limit = 8 * time.Second
	a := start(t, setup{
		host: h, config: "flow: {max_entries: 4096, scan_interval: 10m}\nexport: [{jsonl: {path: DIR/flows.jsonl}}]\n",
		args: []string{"--for", limit.String()},
	})
	for _, flows := range []int{5, 10} { // each query brings what came since the one before
		sendFlows(t, h, 1000, flows)
		await.Success(t, func() error {
			r := a.ask(t, "flows", "udp", "--by", "proto")
			wants(t, r, 0)
			if !strings.Contains(r.stdout, "udp") || !strings.Contains(r.stderr, map[int]string{5: "; 5 packets", 10: "; 15 packets"}[flows]) {
				return notYet("%s%s", r.stdout, r.stderr)
			}
			return nil
		})
	}
	check := execute(t, h, program, "config", "check", a.path("waymark.yaml"))
	if wants(t, check, 0); !strings.Contains(check.stdout, "the running agent has this configuration") {
		t.Errorf("interfaces that were chosen are a difference: %s%s", check.stdout, check.stderr)
	}
	if code := a.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := a.logged(t, "stopping").Sub(a.logged(t, "ready")); took < limit-time.Second {
		t.Errorf("it ended after %v", took)
	}
	wantStopped(t, a, "run --for")
	if !strings.Contains(a.stderr.String(), "counting on interfaces with a default route") || !strings.Contains(a.stderr.String(), "interfaces=near") {
		t.Errorf("it does not report the interfaces that it chose: %s", a.stderr)
	}
	if got := sum(readLines(t, a.path("flows.jsonl")), func(r *record) bool { return r.Proto == 17 }); got.Packets != 15 {
		t.Errorf("exported %d packets of 15", got.Packets)
	}
	if got := attached(t, h); got != "" {
		t.Errorf("left: %s", got)
	}
}

// TestRunUnderTimeout: timeout(1) signals the agent and then its process group. SIGALRM is what its own timer sends.
func TestRunUnderTimeout(t *testing.T) {
	t.Parallel()
	h := oneLink(t)
	a := start(t, setup{
		host: h, config: smallQueue + "export: [{jsonl: {path: DIR/flows.jsonl}}]\n", wrap: []string{"timeout", "600"},
	})
	sendFlows(t, h, 1000, 10)
	a.signal(unix.SIGALRM)
	if code := a.wait(t); code != 124 {
		t.Errorf("exit code %d", code)
	}
	wantStopped(t, a, "terminated")
	if n := len(readLines(t, a.path("flows.jsonl"))); n != 10 {
		t.Errorf("the file has %d records", n)
	}
	if got := attached(t, h); got != "" {
		t.Errorf("left: %s", got)
	}
}

// TestNoDefaultRoute: an agent with nothing to count on says what to do.
func TestNoDefaultRoute(t *testing.T) {
	t.Parallel()
	h := oneLink(t)
	wants(t, execute(t, h, program, "run"), 2, "no interface is configured, and none has a default route", "-i IFACE", "near")
}

// wantStopped fails unless the agent stopped once, for the reason.
func wantStopped(t *testing.T, a *agent, reason string) {
	t.Helper()
	if log := a.stderr.String(); !strings.Contains(log, "stopping") || !strings.Contains(log, reason) || strings.Contains(log, "second stop signal") {
		t.Errorf("it reports: %s", log)
	}
}

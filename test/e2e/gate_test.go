package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

// rules runs a verb of waymark rules against the agent.
func (a *agent) rules(t *testing.T, verb string, args ...string) result {
	t.Helper()
	return waymark(t, append([]string{"rules", verb, "--socket", a.socket}, args...)...)
}

// rule is the only rule in effect with a text.
func (a *agent) rule(t *testing.T, text string) gateservice.Rule {
	t.Helper()
	var list gateservice.Rules
	a.page(t, gateservice.RulesPath, &list)
	i := slices.IndexFunc(list.Rules, func(r gateservice.Rule) bool { return r.Text == text })
	if i < 0 {
		t.Fatalf("no rule %q: %+v", text, list.Rules)
	}
	return list.Rules[i]
}

// dropping is the rule with a text, when it has dropped a number of packets.
func (a *agent) dropping(t *testing.T, text string, packets uint64) (r gateservice.Rule) {
	t.Helper()
	await.True(t, "packets that are dropped by "+text, func() bool {
		r = a.rule(t, text)
		return r.Dropped >= packets
	})
	return r
}

// arrives checks whether a ping is answered. For an answer it waits as long as a busy machine may take.
func arrives(t *testing.T, from, to *lab.Host, want bool) {
	t.Helper()
	wait := "-W0.5"
	if want {
		wait = fmt.Sprintf("-W%.0f", await.Patience.Seconds())
	}
	if r := execute(t, from, "ping", "-c1", wait, to.Addr4().String()); (r.code == 0) != want {
		t.Errorf("ping: %+v", r)
	}
}

// TestRules: rules of a file, changes while the agent runs, reloads; errors change nothing, and no rule
// cuts off the operator unnoticed.
func TestRules(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	const config = quick + "interfaces: [LINKS]\ngate: {interfaces: [to-*], mode: native, rules: DIR/rules}\n"
	a := start(t, setup{host: alpha, config: strings.Replace(config, ", rules: DIR/rules", "", 1)})
	arrives(t, beta, alpha, true)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(a.path("rules"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(a.path("list.txt"), []byte(beta.Addr4().String()+" # beta\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	// The command line reads files, and the agent gets what is in them.
	write("set us from \"list.txt\"\ncount icmp type 8\ndrop icmp src @us\n")
	wants(t, a.rules(t, "apply", a.path("rules")), 0)
	arrives(t, beta, alpha, false)
	drop := a.dropping(t, "drop icmp src @us", 1)
	if drop.Packets != 1 || drop.Dropped != 1 || drop.Bytes != 84 {
		t.Errorf("%+v", drop)
	}
	prints(t, a, gateservice.RulesPath, a.rules(t, "list", "-o", "json"), func(list gateservice.Rules) any {
		var texts []string
		for _, r := range list.Rules {
			texts = append(texts, fmt.Sprint(r.ID, r.Text))
		}
		return texts
	})
	file := fmt.Sprintf("set us { %s }\ncount icmp type 8\ndrop icmp src @us\n", beta.Addr4())
	if r := a.rules(t, "list", "-o", "rules"); r.stdout != file {
		t.Errorf("%+v, want %q", r, file)
	}
	a.explains(t, fmt.Sprintf("drop: decided by rule %d\n", drop.ID), "src", beta.Addr4().String(), "icmp", "type", "8")
	wants(t, a.rules(t, "add", "--before", fmt.Sprint(drop.ID), "pass", "src", "@us"), 0, "never matches")
	arrives(t, beta, alpha, true)
	if n := a.rule(t, "count icmp type 8").Packets; n != 2 {
		t.Errorf("%d packets counted over a change, want 2", n)
	}
	wants(t, a.rules(t, "del", fmt.Sprint(a.rule(t, "pass src @us").ID)), 0)
	arrives(t, beta, alpha, false)
	a.dropping(t, "drop icmp src @us", 2)

	// What is wrong changes nothing.
	wants(t, a.rules(t, "add", "drop", "upd"), 2, "did you mean udp?")
	wants(t, a.rules(t, "del", "17"), 1, "there is no rule 17")
	write("drop upd\n")
	wants(t, a.rules(t, "apply", a.path("rules")), 2, "did you mean udp?")
	ssh := exec.Command(program, "rules", "add", "--socket", a.socket, "drop", "tcp")
	ssh.Env = append(os.Environ(), fmt.Sprintf("SSH_CONNECTION=%s 50000 %s 22", beta.Addr6(), alpha.Addr6()))
	wants(t, finish(t, nil, ssh), 1, `"drop tcp" would drop your connection`, "--force")
	forced := exec.Command(program, "rules", "add", "--socket", a.socket, "--force", "drop", "tcp")
	forced.Env = ssh.Env
	wants(t, finish(t, nil, forced), 0)
	a.rule(t, "drop tcp")

	// The file that the configuration names counts, at each reload.
	write("drop udp\n")
	a.reload(t, config, "configuration reloaded")
	arrives(t, beta, alpha, true)
	write("drop ip\n")
	a.reload(t, config, "configuration reloaded")
	arrives(t, beta, alpha, false)
	a.dropping(t, "drop ip", 1)
	write("drop ipp\n")
	a.reload(t, config, "configuration not reloaded")
	a.rule(t, "drop ip")
	s := gateservice.StatusOf(new(a.status(t)))
	if s == nil || len(s.Interfaces) != 1 || s.Interfaces[0].Hook != "xdp" || s.Removed.Dropped != 2 {
		t.Fatalf("%+v", s)
	}

	// What rules dropped is in flow records with its rule, and the counts of the interface are complete.
	want := s.Removed.Dropped + a.rule(t, "drop ip").Dropped
	await.True(t, "all drops in flow records", func() bool { return a.droppedBy(t)["drop ip"] > 0 })
	by, total := a.droppedBy(t), uint64(0)
	for _, n := range by {
		total += n
	}
	if total != want || by["drop icmp src @us"] != 2 {
		t.Errorf("%d packets dropped by rules, want %d: %v", total, want, by)
	}
	for _, i := range a.covered(t).Interfaces {
		if i.Direction == "ingress" && i.Coverage != 1 || slices.ContainsFunc(i.Uncounted, func(u obs.Reason) bool { return u.Reason == "dropped_by_rule" }) {
			t.Errorf("%+v", i)
		}
	}
	if r := a.ask(t, "flows", `dropped_by "drop ip"`); !strings.Contains(r.stdout, "DROPPED_BY") || !strings.Contains(r.stdout, "drop ip") {
		t.Errorf("%+v", r)
	}
}

// droppedBy are the packets that rules dropped, as flow records have them, by the text of the rule.
func (a *agent) droppedBy(t *testing.T) map[string]uint64 {
	t.Helper()
	r := a.ask(t, "flows", "drops > 0", "--by", "drops.by", "--since", "1h", "-o", "json")
	var answer struct {
		Rows []struct {
			Drops struct {
				By      string
				Packets uint64
			}
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	by := map[string]uint64{}
	for _, f := range answer.Rows {
		by[f.Drops.By] += f.Drops.Packets
	}
	return by
}

// monitors: waymark rules monitor shows what a rule drops, with the packet, until it is interrupted; and says what is
// wrong.
func monitors(t *testing.T, a *agent, to, from *lab.Host) {
	t.Helper()
	wants(t, a.rules(t, "add", "drop", "icmp"), 0)
	m := spawn(t, nil, command(program, "rules", "monitor", "--socket", a.socket, "--every", "100ms", "-o", "jsonl"))
	var seen struct {
		Rules []struct {
			Text    string
			Dropped uint64
			Newest  []gateservice.Captured
		}
	}
	await.True(t, "a rule with its packet", func() bool {
		arrives(t, from, to, false)
		for line := range strings.Lines(m.stdout.String()) {
			if json.Unmarshal([]byte(line), &seen) != nil { // not written to its end
				return false
			}
			if len(seen.Rules) > 0 && seen.Rules[0].Text == "drop icmp" && len(seen.Rules[0].Newest) > 0 {
				return true
			}
		}
		return false
	})
	if r := seen.Rules[0]; r.Dropped == 0 || r.Newest[0].Verdict != "drop" || r.Newest[0].Rule == nil || r.Newest[0].Rule.Text != "drop icmp" {
		t.Errorf("%+v", r)
	}
	m.signal(interrupt)
	if code := m.wait(t); code != 0 {
		t.Errorf("exit code %d after an interrupt: %s", code, m.stderr)
	}
	wants(t, waymark(t, "rules", "monitor", "--socket", a.path("none.sock")), 1, "none.sock", "waymark run")
	wants(t, a.rules(t, "monitor", "--every", "1ms"), 2, "--every of at least")
	wants(t, a.rules(t, "monitor", "now"), 2, "now")
}

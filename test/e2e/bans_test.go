package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/test/await"
)

// bans are those in effect.
func (a *agent) bans(t *testing.T) (list gateservice.Bans) {
	t.Helper()
	a.page(t, gateservice.BansPath, &list)
	return list
}

// TestBans: a banned source reaches nothing, until its ban ends; allow lists come first; bans outlast
// changes of rules and a restart; and none cuts off the operator unnoticed.
func TestBans(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	const config = quick + "interfaces: [LINKS]\ngate: {interfaces: [to-*], mode: tc, bans: {max: 2}, state: DIR/gate.json}\n"
	a := start(t, setup{host: alpha, config: config})
	source := beta.Addr4().String()
	arrives(t, beta, alpha, true)
	wants(t, a.rules(t, "ban", source, "for", "1h", "tries", "passwords"), 0)
	arrives(t, beta, alpha, false)
	wants(t, a.rules(t, "add", "count", "icmp"), 0)
	arrives(t, beta, alpha, false)
	var list gateservice.Bans
	await.True(t, "two pings that are dropped", func() bool {
		list = a.bans(t)
		return len(list.Bans) != 1 || list.Bans[0].Dropped >= 2
	})
	if len(list.Bans) != 1 || list.Bans[0].Prefix.Addr() != beta.Addr4() || list.Bans[0].Dropped != 2 || list.Bans[0].Reason != "tries passwords" || list.Bans[0].Until == nil || list.Bans[0].By != "operator" {
		t.Errorf("%+v", list)
	}
	prints(t, a, gateservice.BansPath, a.rules(t, "bans", "-o", "json"), func(list gateservice.Bans) any { return list })

	// What is wrong changes nothing.
	wants(t, a.rules(t, "ban", "192.0.2.1/24"), 2, "did you mean 192.0.2.0/24")
	wants(t, a.rules(t, "ban", "192.0.2.1", "for", "ever"), 2, "write a duration")
	wants(t, a.rules(t, "ban", "0.0.0.0/0"), 1, "all hosts", "--force")
	wants(t, a.rules(t, "unban", "192.0.2.1"), 1, "192.0.2.1 is not banned")
	wants(t, a.rules(t, "unban"), 2, "--all")
	ssh := exec.Command(program, "rules", "ban", "--socket", a.socket, "2001:db8::/16")
	ssh.Env = append(os.Environ(), fmt.Sprintf("SSH_CONNECTION=%s 50000 %s 22", "2001:db8::7", alpha.Addr6()))
	wants(t, finish(t, nil, ssh), 2, "did you mean")
	ssh = exec.Command(program, "rules", "ban", "--socket", a.socket, "2001:db8::/32")
	ssh.Env = append(os.Environ(), fmt.Sprintf("SSH_CONNECTION=%s 50000 %s 22", "2001:db8::7", alpha.Addr6()))
	wants(t, finish(t, nil, ssh), 1, "would drop your connection from [2001:db8::7]:50000", "--force")

	// Allow lists come before bans, and a ban of one of them has no effect.
	wants(t, a.rules(t, "ban", "192.0.2.1"), 0)
	wants(t, a.rules(t, "ban", "192.0.2.3"), 2, "all 2 bans are in use")
	wants(t, a.rules(t, "add", "--first", "pass", "src", source), 0)
	arrives(t, beta, alpha, true)
	a.explains(t, "pass: decided by rule ", "src", source, "icmp", "type", "8")
	wants(t, a.rules(t, "ban", source), 1, "is on the allow list")
	wants(t, a.rules(t, "del", fmt.Sprint(a.rule(t, "pass src "+source).ID)), 0)
	arrives(t, beta, alpha, false)
	a.explains(t, "drop: "+source+"/32 is banned, until ", "src", source, "icmp", "type", "8")
	a.explains(t, `"ban": {`, "-o", "json", "src", source)
	a.explains(t, "pass: no rule decides about the packet", "src", "192.0.2.9", "icmp", "type", "8")

	// The next agent has the same bans.
	wants(t, a.rules(t, "unban", "192.0.2.1"), 0)
	file, err := os.ReadFile(a.path("gate.json"))
	if err != nil {
		t.Fatal(err)
	}
	a.stop(t)
	arrives(t, beta, alpha, true)
	b := start(t, setup{host: alpha, config: strings.ReplaceAll(config, "DIR/gate.json", a.path("gate.json"))})
	arrives(t, beta, alpha, false)
	if next := b.bans(t); len(next.Bans) != 1 || !next.Bans[0].Until.Equal(*list.Bans[0].Until) || next.Bans[0].Reason != "tries passwords" {
		t.Errorf("%+v, of %s", next, file)
	}
	wants(t, b.rules(t, "ban", source, "for", "100ms"), 0)
	await.True(t, "the end of the ban", func() bool { return execute(t, beta, "ping", "-c1", "-W1", alpha.Addr4().String()).code == 0 })
	await.True(t, "the end of the ban in the list", func() bool { return len(b.bans(t).Bans) == 0 })
	s := gateservice.StatusOf(new(b.status(t)))
	if s == nil || s.Banned.Dropped == 0 || s.MaxBans != 2 {
		t.Errorf("%+v", s)
	}
}

// explains: rules explain answers for what is in effect.
func (a *agent) explains(t *testing.T, want string, packet ...string) {
	t.Helper()
	if r := a.rules(t, "explain", packet...); r.code != 0 || !strings.Contains(r.stdout, want) {
		t.Errorf("%+v, want %q", r, want)
	}
}

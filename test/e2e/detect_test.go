package e2e

import (
	"fmt"
	"net"
	"testing"

	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/test/await"
)

// TestDetection: a source that sends more than a watch allows is banned with evidence, and its ban ends by itself;
// one on the allow list is reported and not banned.
func TestDetection(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\n" +
		"gate: {interfaces: [to-*], mode: tc, detect: {watch: [\"200/s per src udp dst port 9\"], ban: 2s}}\n"})
	burst := func() {
		t.Helper()
		if err := beta.Do(func() error {
			c, err := net.Dial("udp", net.JoinHostPort(alpha.Addr4().String(), "9"))
			if err != nil {
				return err
			}
			defer c.Close()
			for range 8000 {
				_, _ = c.Write([]byte("much")) // refused by the host, whose answer is an error of the next
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	arrives(t, beta, alpha, true)
	wants(t, a.rules(t, "add", "pass", "src", beta.Addr4().String()), 0)
	await.True(t, "a report of the allow list", func() bool {
		burst()
		return gateservice.StatusOf(new(a.status(t))).Detected["allowed"] > 0
	})
	if list := a.bans(t).Bans; len(list) != 0 {
		t.Fatalf("the allow list is banned: %+v", list)
	}
	for _, r := range gateservice.StatusOf(new(a.status(t))).Rules.Rules {
		if r.Text == "pass src "+beta.Addr4().String() {
			wants(t, a.rules(t, "del", fmt.Sprint(r.ID)), 0)
		}
	}
	var ban gateservice.Ban
	await.True(t, "a ban", func() bool {
		burst()
		for _, b := range a.bans(t).Bans {
			ban = b
		}
		return ban.Evidence != nil
	})
	if e := ban.Evidence; ban.Prefix.Addr() != beta.Addr4() || ban.By != "detection" || ban.Until == nil || e.Threshold != 200 || e.Amount < 200 || e.Rate < 100 || e.Unit != "packets" {
		t.Errorf("%+v, %+v", ban, e)
	}
	await.True(t, "the end of the ban", func() bool { return len(a.bans(t).Bans) == 0 })
	arrives(t, beta, alpha, true)
	a.logged(t, "gate: ban")
}

package e2e

import (
	"fmt"
	"testing"

	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/test/await"
)

// TestGateClimbs: when the program of someone else's has gone, rules move from tc to XDP at a reload, and no packet meets
// none, or meets them twice.
func TestGateClimbs(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	iface := alpha.Interfaces[0].Name
	leave := occupy(t, alpha, iface)
	const config = quick + "interfaces: [LINKS]\ngate: {interfaces: [to-*], mode: native}\n"
	a := start(t, setup{host: alpha, config: config})
	rule := fmt.Sprintf("drop udp dst port %d", forbidden)
	wants(t, a.rules(t, "add", rule), 0)
	hook := func() string { return gateservice.StatusOf(new(a.status(t))).Interfaces[0].Hook }
	if got := hook(); got != "tc" {
		t.Fatalf("rules run at %s", got)
	}
	s := newSteady(t, beta, alpha)
	s.goesOn(t, "at tc")
	leave()
	a.reload(t, config, "configuration reloaded")
	await.True(t, "rules at XDP", func() bool { return hook() == "xdp" })
	s.goesOn(t, "at XDP")
	s.stop()
	sent := s.sent.Load()
	if got := a.dropping(t, rule, sent); got.Dropped != sent || got.Packets != sent || s.passed.Load() != 0 {
		t.Errorf("%d packets counted of %d, and %d passed", got.Dropped, sent, s.passed.Load())
	}
}

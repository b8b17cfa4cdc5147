package service

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/stage"
)

// Names of interfaces to which the agent does not attach are in the status, and in the log.
func TestUnattachedInterfaces(t *testing.T) {
	var log strings.Builder
	s := &service{cfg: Config{Interfaces: []string{"eth0", "eth1", "wan*"}}, deps: stage.Deps{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	s.warnOfUnattached([]string{"eth*"}, []string{"eth1"})
	if n := strings.Count(log.String(), "meet no rules"); n != 1 || !strings.Contains(log.String(), "interface=eth1") {
		t.Errorf("%d warnings: %s", n, log.String())
	}
	got := s.unmet([]Interface{{Name: "eth0", Hook: "xdp"}, {Name: "lan0", Hook: "tc"}})
	if len(got) != 2 || got[0].Name != "eth1" || got[1].Name != "wan*" || got[0].Hook != "none" || got[0].Why == "" {
		t.Errorf("%+v", got)
	}
}

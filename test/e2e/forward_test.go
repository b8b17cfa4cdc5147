package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	forward "github.com/waymark-net/waymark/internal/forward/service"
	"github.com/waymark-net/waymark/test/await"
)

// TestForwardStatus: the status names what an interface of forward.interfaces takes part in, and those that are not there; so
// do all formats, and rules of netfilter that come and go change it.
func TestForwardStatus(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\nforward: {interfaces: [to-beta, missing0]}\n"})
	status := func() (s forward.Status) {
		t.Helper()
		if err := json.Unmarshal([]byte(must(t, nil, program, "forward", "status", "-o", "json", "--socket", a.socket)), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := status()
	if len(s.Interfaces) != 2 || s.Interfaces[0].Iface != "to-beta" || s.Interfaces[1].Iface != "missing0" ||
		!s.Interfaces[0].Receives || s.Interfaces[1].Receives || !strings.Contains(s.Interfaces[1].Reason, "no such interface") {
		t.Errorf("%+v", s)
	}
	for _, format := range []string{"table", "jsonl", "csv"} {
		if got := must(t, nil, program, "forward", "status", "-o", format, "--socket", a.socket); !strings.Contains(got, "to-beta") {
			t.Errorf("%s: %s", format, got)
		}
	}
	if got := must(t, nil, program, "status", "--socket", a.socket); !strings.Contains(got, "Forwarding at XDP") {
		t.Error(got)
	}
	must(t, alpha, "nft", "add table inet t; add chain inet t c { type filter hook forward priority 0; policy drop; }")
	await.True(t, "rules of netfilter that would be bypassed", func() bool {
		i := status().Interfaces[0]
		return !i.Receives && strings.Contains(i.Reason, "inet t c") && strings.Contains(i.Reason, "forward.bypass_netfilter")
	})
	must(t, alpha, "nft", "delete table inet t")
	await.True(t, "forwarding again", func() bool { return status().Interfaces[0].Receives })
}

// TestForwardOff: without the section, the command says what to configure.
func TestForwardOff(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\n"})
	r := waymark(t, "forward", "status", "--socket", a.socket)
	if r.code == 0 || !strings.Contains(r.stderr, "forward.interfaces") {
		t.Errorf("%+v", r)
	}
	a.stop(t)
}

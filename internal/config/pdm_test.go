package config

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/inband/policy"
)

func TestPDMFlows(t *testing.T) {
	if Default().PDM.On() {
		t.Error("marking is on by default")
	}
	c, _, err := Load(Sources{File: write(t, `
pdm:
  mode: packet
  state: {lifetime: 30s}
  policies:
    - {to: "2001:db8::/32", proto: tcp, ports: [443, "8000-8099"], for: 2h}
    - {to: "::/0", proto: 58, interface: "eth*"}
    - to: 2001:db8::53
      proto: udp
`)})
	if err != nil {
		t.Fatal(err)
	}
	if !c.PDM.On() || c.PDM.State.Lifetime != 30*time.Second || c.PDM.State.MaxEntries != 65536 {
		t.Errorf("%+v", c.PDM)
	}
	got, err := c.PDM.Flows()
	if err != nil {
		t.Fatal(err)
	}
	prefix := netip.MustParsePrefix
	want := []policy.Policy{
		{To: prefix("2001:db8::/32"), Protos: []uint8{6}, Ports: []policy.Ports{{From: 443, To: 443}, {From: 8000, To: 8099}}, Interface: "*", For: 2 * time.Hour},
		{To: prefix("::/0"), Protos: []uint8{58}, Interface: "eth*", For: time.Hour},
		{To: prefix("2001:db8::53/128"), Protos: []uint8{17}, Interface: "*", For: time.Hour},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

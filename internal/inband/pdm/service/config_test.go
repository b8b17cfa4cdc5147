package service

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/test/golden"
)

func TestPolicies(t *testing.T) {
	if c := config.Default(); Section.Enabled(&c) {
		t.Error("marking is on by default")
	}
	c, err := config.Parse(`
pdm:
  mode: packet
  state: {lifetime: 30s}
  policies:
    - {to: "2001:db8::/32", proto: tcp, ports: [443, "8000-8099"], for: 2h}
    - {to: "::/0", proto: 58, interface: "eth*"}
    - to: 2001:db8::53
      proto: udp
`)
	if err != nil {
		t.Fatal(err)
	}
	own := Section.Of(&c)
	if !Section.Enabled(&c) || own.State.Lifetime != 30*time.Second || own.State.MaxEntries != 65536 {
		t.Errorf("%+v", own)
	}
	got, err := own.flows()
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

// Each file of testdata is refused with exactly the text next to it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		_, _, err := config.Load(config.Sources{File: file})
		if err == nil {
			t.Errorf("%s was accepted", file)
			continue
		}
		got := strings.ReplaceAll(err.Error(), file, "waymark.yaml") + "\n"
		golden.Check(t, strings.TrimSuffix(file, ".yaml")+".want", got)
	}
}

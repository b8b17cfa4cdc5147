package lab_test

import (
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
)

// ethtool is the judge of what the kernel really does.
func TestSetOffloads(t *testing.T) {
	l := up(t, lab.Config{Topology: "pair"})
	alpha := l.Host("alpha")
	for _, step := range []struct {
		set  lab.Offload
		on   bool
		want map[string]string
	}{
		{0, true, map[string]string{
			"tx-tcp-segmentation": "on", "tx-udp-segmentation": "on", "generic-segmentation-offload": "on",
			"generic-receive-offload": "off", "tx-checksum-ip-generic": "on",
		}},
		{lab.TSO | lab.USO, false, map[string]string{
			"tx-tcp-segmentation": "off", "tx-tcp6-segmentation": "off", "tx-udp-segmentation": "off",
			"generic-segmentation-offload": "on", "tx-checksum-ip-generic": "on",
		}},
		{lab.VethDefault, false, map[string]string{
			"tx-tcp-segmentation": "off", "generic-segmentation-offload": "off", "tx-checksum-ip-generic": "off",
		}},
		{lab.VethDefault | lab.GRO, true, map[string]string{
			"tx-tcp-segmentation": "on", "tx-udp-segmentation": "on", "generic-segmentation-offload": "on",
			"generic-receive-offload": "on", "tx-checksum-ip-generic": "on",
		}},
	} {
		if err := l.SetOffloads(step.set, step.on); err != nil {
			t.Fatal(err)
		}
		said, err := alpha.Run(t.Context(), "ethtool", "-k", "to-beta")
		if err != nil {
			t.Fatal(err)
		}
		ours, err := alpha.Features("to-beta")
		if err != nil {
			t.Fatal(err)
		}
		for feature, want := range step.want {
			if !strings.Contains(said, feature+": "+want) {
				t.Errorf("after %+v ethtool does not say %s: %s:\n%s", step, feature, want, said)
			}
			if on, ok := ours[feature]; ok && on != (want == "on") {
				t.Errorf("after %+v Features says %s: %v", step, feature, on)
			}
		}
	}
}

func TestSetFeaturesTellsWhatTheKernelRefuses(t *testing.T) {
	l := up(t, lab.Config{Topology: "pair"})
	alpha := l.Host("alpha")
	for feature, want := range map[string]string{
		"no-such-feature":   "unknown feature",
		"rx-vlan-filter":    "did not switch", // fixed on veth
		"tx-checksum-ipv4x": "unknown feature",
	} {
		if err := alpha.SetFeatures("to-beta", true, feature); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("switch %s on: %v, want %q", feature, err, want)
		}
	}
	if err := alpha.SetFeatures("to-nowhere", true, "rx-gro"); err == nil {
		t.Error("features of an interface that does not exist were set")
	}
}

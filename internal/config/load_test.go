package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/golden"
)

// Each file of testdata/bad is refused with exactly the text next to it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			if err := os.WriteFile("waymark.yaml", data, 0o644); err != nil {
				t.Fatal(err)
			}
			_, _, err = Load(Sources{File: "waymark.yaml"})
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("Load = %v, want Problems", err)
			}
			t.Chdir(filepath.Join(pkgDir))
			golden.Check(t, "testdata/bad/"+name+".want", err.Error()+"\n")
		})
	}
}

var pkgDir, _ = os.Getwd()

func TestEmptyFilesSetNothing(t *testing.T) {
	for _, text := range []string{"", "\n", "# a comment\n", "---\n", "{}\n", "flow:\nlog:\n"} {
		c, _, err := Load(Sources{File: write(t, text)})
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(Default(), c); diff != "" {
			t.Errorf("%q is not the default (-want +got):\n%s", text, diff)
		}
	}
}

func TestUnreadableFile(t *testing.T) {
	if _, _, err := Load(Sources{File: filepath.Join(t.TempDir(), "none.yaml")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, _, err := Load(Sources{File: "/dev/zero"}); err == nil || !strings.Contains(err.Error(), "larger than 1MiB") {
		t.Errorf("endless file: %v", err)
	}
}

func TestPrecedence(t *testing.T) {
	c, origins, err := Load(Sources{
		File: write(t, "flow: {sampling: 2, scan_interval: 1s, idle_timeout: 3s}\ninterfaces: [a]\n"),
		Env:  []string{"WAYMARK_FLOW_SAMPLING=3", "WAYMARK_FLOW_SCAN_INTERVAL=2s", "WAYMARK_PORT=tcp://10.0.0.1:80", "HOME=/root"},
		Flags: []Flag{
			{Name: "--set", Key: "flow.sampling", Value: "4"},
			{Name: "-i", Key: "interfaces", Value: "b"},
			{Name: "-i", Key: "interfaces", Value: "c,d"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Flow.Sampling = 4
	want.Flow.ScanInterval = 2 * time.Second
	want.Flow.IdleTimeout = 3 * time.Second
	want.Interfaces = []Interface{{"b", "both", ""}, {"c", "both", ""}, {"d", "both", ""}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key, where := range map[string]string{
		"flow.sampling":      "--set",
		"flow.scan_interval": "WAYMARK_FLOW_SCAN_INTERVAL",
		"interfaces[2]":      "-i",
		"flow.ring_size":     "", // only its neighbours were set
	} {
		if origins[key] != where {
			t.Errorf("origin of %s = %q, want %q", key, origins[key], where)
		}
	}
	if got := origins["flow.idle_timeout"]; !strings.HasSuffix(got, ":1:54") {
		t.Errorf("origin of flow.idle_timeout = %q, want line 1, column 54", got)
	}
}

func TestListsInVariables(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  []Interface
	}{
		{"eth0", []Interface{{"eth0", "both", ""}}},
		{"eth0, veth*:ingress", []Interface{{"eth0", "both", ""}, {"veth*", "ingress", ""}}},
		{`["eth0", 'veth*:egress']`, []Interface{{"eth0", "both", ""}, {"veth*", "egress", ""}}},
		{`[{match: eth0, direction: ingress}, {match: "*"}, "lo:both"]`, []Interface{{"eth0", "ingress", ""}, {"*", "both", ""}, {"lo", "both", ""}}},
		{"eth0:both:100Mbit", []Interface{{"eth0", "both", "100Mbit"}}},
		{"", nil},
		{"[]", []Interface{}},
	} {
		c, _, err := Load(Sources{Env: []string{"WAYMARK_INTERFACES=" + tt.value}})
		if err != nil {
			t.Errorf("%q: %v", tt.value, err)
		}
		if diff := cmp.Diff(tt.want, c.Interfaces); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.value, diff)
		}
	}
	c, _, err := Load(Sources{Env: []string{`WAYMARK_EXPORT=[{jsonl: {path: "-"}}, {ipfix: {biflow: true}}]`}})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Export) != 2 || c.Export[0].JSONL.Queue != 65536 || !c.Export[1].IPFIX.Biflow {
		t.Errorf("export = %+v", c.Export)
	}
}

func TestBadVariablesAndFlags(t *testing.T) {
	_, _, err := Load(Sources{
		Env: []string{
			"WAYMARK_FLOW_SAMPLING=none",
			"WAYMARK_INTERFACES=[eth0",
			"WAYMARK_FLOW_TUNNELS=vxlan,grr",
			"WAYMARK_EXPORT=[{jsnl: {}}]",
		},
		Flags: []Flag{
			{Name: "--set", Key: "flow.samplign", Value: "1"},
			{Name: "--set", Key: "colour", Value: "blue"},
			{Name: "--log-level", Key: "log.level", Value: "loud"},
		},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	golden.Check(t, "testdata/variables.want", err.Error()+"\n")
}

// TestDirections: the first entry that matches decides.
func TestDirections(t *testing.T) {
	c := Config{Interfaces: []Interface{{"eth0", "ingress", ""}, {"veth*", "egress", ""}, {"veth7", "both", ""}, {"*", "both", ""}}}
	in, out := flow.Ingress, flow.Egress
	for name, want := range map[string][]flow.Direction{
		"eth0": {in}, "veth1": {out}, "veth7": {out}, "eth1": {in, out},
	} {
		if got := c.Directions(name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got, want := c.InterfaceTexts(), []string{"eth0:ingress", "veth*:egress", "veth7", "*"}; !slices.Equal(got, want) {
		t.Errorf("texts %q, want %q", got, want)
	}
}

func TestUnknownEnv(t *testing.T) {
	got := UnknownEnv([]string{
		"WAYMARK_FLOW={}", // like WAYMARK_PROBE in its prefix alone
		"WAYMARK_FLOW_SAMPLING=1", "WAYMARK_FLOW_SMAPLING=1", "WAYMARK_PORT_9474_TCP_ADDR=10.0.0.1", "FLOW_SAMPLING=1",
	})
	want := []string{"WAYMARK_FLOW_SMAPLING sets nothing; did you mean WAYMARK_FLOW_SAMPLING?"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDump(t *testing.T) {
	t.Chdir(t.TempDir())
	file := "interfaces: [\"eth0\", 'veth*', {match: wl*, direction: egress}]\nflow:\n  ring_size: 65536\nexport:\n  - jsonl:\n  - ipfix: {collector: \"udp://[::1]:4739\"}\n"
	if err := os.WriteFile("waymark.yaml", []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	c, origins, err := Load(Sources{File: "waymark.yaml", Env: []string{"WAYMARK_LOG_LEVEL=debug"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Dump(&b, c, origins); err != nil {
		t.Fatal(err)
	}
	t.Chdir(pkgDir)
	golden.Check(t, "testdata/dump.want", b.String())
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waymark.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// All problems are reported at once; what only follows from one of them is not.
func TestProblemsAtOnce(t *testing.T) {
	_, _, err := Load(Sources{File: write(t, `flow: {ring_size: 5000}
interfaces: [{}, {matc: x}]
export:
- prometheus: {listen: "127.0.0.1:9474"}
- prometheus: {listen: "127.0.0.1:9474"}
- ipfix: {collector: "udp://127.0.0.1:4739", ca: ca.pem, flush: never}
gate: {rate: 2000, rules: [{}]}
`)})
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	var keys []string
	for _, p := range problems {
		keys = append(keys, p.Key)
	}
	// Not: interfaces[1] without match, gate.rules without a rate, ca without TLS.
	want := []string{"interfaces[1].matc", "export[2].ipfix.flush", "gate.rate", "flow.ring_size", "interfaces[0]", "export[1].prometheus.listen"}
	if !slices.Equal(keys, want) {
		t.Errorf("%v: keys %q, want %q", err, keys, want)
	}
}

// TestSpeeds: texts of speeds and percentages, and those that are refused.
func TestSpeeds(t *testing.T) {
	for text, want := range map[string]uint64{"": 0, "100Mbit": 100e6, "2.5gbit": 2.5e9, "56kbit": 56e3, "9bit": 9} {
		if got, err := ParseSpeed(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"100", "Mbit", "-1Mbit", "0bit", "1e9bit", "5MB", "99999999999Tbit"} {
		if got, err := ParseSpeed(text); err == nil {
			t.Errorf("%q: accepted as %d", text, got)
		}
	}
	for text, want := range map[string]float64{"0.5%": 0.005, "100 %": 1, "60%": 0.6} {
		if got, err := ParsePercent(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "%", "0%", "-1%", "101%", "0.5", "NaN%", "x%"} {
		if got, err := ParsePercent(text); err == nil {
			t.Errorf("%q: accepted as %v", text, got)
		}
	}
	c := Config{Interfaces: []Interface{{"eth0", "both", ""}, {"eth*", "both", "10Mbit"}}}
	if a, b, none := c.Speed("eth0"), c.Speed("eth1"), c.Speed("lo"); a != 0 || b != 10e6 || none != 0 {
		t.Errorf("%d, %d, %d", a, b, none)
	}
	if got := c.InterfaceTexts()[1]; got != "eth*:both:10Mbit" {
		t.Error(got)
	}
}

package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// gate is a section that only this test has.
type gate struct {
	Rate  uint32     `yaml:"rate" default:"0" max:"1000" doc:"packets per second; 0: off"`
	State gateState  `yaml:"state"`
	Rules []gateRule `yaml:"rules" reload:"yes" doc:"what passes"`
}

type gateState struct {
	Lifetime time.Duration `yaml:"lifetime" default:"60s" min:"1s" max:"24h" doc:"time to keep it"`
}

// GateWhere is embedded: its keys are those of a rule.
type GateWhere struct {
	To string `yaml:"to" default:"::/0" kind:"prefix6" doc:"destination"`
}

type gateRule struct {
	GateWhere
	Ports []string `yaml:"ports" kind:"ports" doc:"ports; empty: all"`
}

var gateSection = Register(Section[gate]{
	Name: "gate", Doc: "a stage of this test",
	On: func(g *gate) bool { return g.Rate > 0 },
	Check: func(g *gate, complain Complain) {
		if g.Rate == 0 && len(g.Rules) > 0 {
			complain("gate.rules", "rules without a rate", "set gate.rate")
		}
	},
})

// A section is read from file, variable and flag, and described, like keys of this
// package.
func TestSection(t *testing.T) {
	c, _, err := Load(Sources{
		File:  write(t, "gate:\n  rate: 5\n  rules: [{ports: [53]}]\n"),
		Env:   []string{"WAYMARK_GATE_STATE_LIFETIME=7s"},
		Flags: []Flag{{Name: "--set", Key: "gate.rate", Value: "6"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := gate{Rate: 6, State: gateState{Lifetime: 7 * time.Second}, Rules: []gateRule{{GateWhere{"::/0"}, []string{"53"}}}}
	if diff := cmp.Diff(want, gateSection.Of(&c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if def := Default(); !gateSection.Enabled(&c) || gateSection.Enabled(&def) || gateSection.Of(&def).State.Lifetime != time.Minute {
		t.Errorf("default %+v", gateSection.Of(&def))
	}
	described := slices.ContainsFunc(Reference(), func(g Group) bool {
		return g.Name == "gate" && g.Doc == "a stage of this test" && len(g.Keys) == 5 && g.Keys[1].Name == "gate.state.lifetime"
	})
	if _, ok := Schema()["properties"].(map[string]any)["gate"]; !ok || !described {
		t.Errorf("in the schema: %t; in the reference: %t", ok, described)
	}
}

// Every problem of a section names its place and key.
func TestSectionProblems(t *testing.T) {
	for yaml, want := range map[string]string{
		"gate: {rate: 1001}\n":                        ":1:14: gate.rate: 1001 is out of range; allowed: 0 to 1000",
		"gate: {rte: 1}\n":                            ":1:8: gate.rte: unknown key; did you mean rate?",
		"gaet: {}\n":                                  ":1:1: gaet: unknown key; did you mean gate?",
		"gate: {rules: [{}]}\n":                       ":1:15: gate.rules: rules without a rate; set gate.rate",
		"probe: afpacket\ngate: {rate: 1}\n":          ":2:7: gate: not available with the afpacket probe, which only counts packets; set probe: ebpf, or remove gate",
		"probe: ebpf\ngate: {rate: 1}\ngate: {}\n":    ":3:1: gate: given twice; the first is at",
		"probe: afpacket\ngate: {rate: 0, rules: []}": "",
	} {
		_, _, err := Load(Sources{File: write(t, yaml)})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %s", yaml, err, want)
		}
	}
}

// Copies of a Config do not change with it.
func TestSectionOfCopies(t *testing.T) {
	running := Default()
	next := running
	gateSection.Edit(&next).Rules = []gateRule{{GateWhere: GateWhere{"2001:db8::/32"}}}
	gateSection.Edit(&next).Rate = 3
	if diff := cmp.Diff(Default(), running); diff != "" {
		t.Errorf("the copy changed the original (-want +got):\n%s", diff)
	}
	merged := Reloaded(running, next)
	if got := gateSection.Of(&merged); got.Rate != 0 || len(got.Rules) != 1 || len(gateSection.Of(&running).Rules) != 0 {
		t.Errorf("reloaded %+v, running %+v", got, gateSection.Of(&running))
	}
	changed := map[string]bool{}
	for _, c := range Changes(running, next) {
		changed[c.Key] = c.Reload
	}
	if want := map[string]bool{"gate.rate": false, "gate.rules": true}; !maps.Equal(changed, want) {
		t.Errorf("changes %v", changed)
	}
	// A Config that was not made by Default has sections, too.
	var literal Config
	if gateSection.Enabled(&literal) || len(Changes(literal, Config{})) != 0 {
		t.Error("an empty configuration has a stage")
	}
	gateSection.Edit(&literal).Rate = 1
	if !gateSection.Enabled(&literal) {
		t.Error("an edit is without effect")
	}
}

func TestRegisterTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a second section of the same name was accepted")
		}
	}()
	Register(Section[gate]{Name: "flow"})
}

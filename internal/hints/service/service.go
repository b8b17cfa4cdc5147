// Package service is the reading of hints as a stage of the agent: it decides which interfaces get a
// program that is bound to their device, and reports how often hints were there. Input: interfaces on
// which other stages run at XDP. Output: constants for bpf/hints. Package list registers it.
package service

import (
	"slices"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/stage"
)

// name is that of the sections in configuration and status.
const name = "hints"

// Config is the section of the configuration.
type Config struct {
	Use string `yaml:"use" default:"auto" oneof:"auto never always" doc:"auto: a stage at XDP that needs a hint of the driver reads it (ioam.node.receive_time: nic). always: the agent also counts how often each hint is there, where it runs at XDP. never: hints are computed"`
}

var section = config.Register(config.Section[Config]{
	Name: name, Doc: "what network cards know of received packets, for stages at XDP",
	On: func(c *Config) bool { return c.Use == "always" }, // by itself
})

// Enabled reports whether hints are read where a stage needs them.
func Enabled(c *config.Config) bool { return section.Of(c).Use != "never" }

// consumers report whether a stage runs that may read hints.
var consumers []func(*config.Config) bool

// Consumer registers one. A package calls it to initialize a variable.
func Consumer(on func(*config.Config) bool) struct{} {
	consumers = append(consumers, on)
	return struct{}{}
}

// Kind registers the stage.
func Kind() stage.Kind {
	return stage.Kind{
		Name: name,
		On: func(c *config.Config) bool {
			return section.Enabled(c) || Enabled(c) && slices.ContainsFunc(consumers, func(on func(*config.Config) bool) bool { return on(c) })
		},
		New:  newStage,
		Text: writeText,
	}
}

func newStage(cfg *config.Config, deps stage.Deps) (*stage.Stage, error) {
	r := NewReader(section.Of(cfg).Use == "always")
	return &stage.Stage{
		Datapath: r.Stage(),
		Status:   func() (any, error) { return r.status(deps.IfaceName) },
	}, nil
}

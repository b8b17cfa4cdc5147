// Package service is the reading of hints as a stage of the agent: it decides which interfaces get a
// program that is bound to their device, and on which packets carry their hints on; it reports how often hints
// were there. Input: interfaces on which other stages run at XDP, or where somebody wants hints. Output: constants
// and maps for bpf/hints. Package list registers it.
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

	Metadata     []string `yaml:"metadata" kind:"glob" doc:"names or globs of interfaces whose packets carry their hints in front of them, for other programs at tc and for AF_XDP sockets; the agent must attach to them (interfaces)"`
	Sockets      string   `yaml:"sockets" default:"all" oneof:"all tapped" doc:"what AF_XDP sockets on these interfaces get. all: every packet that rules let pass; tapped: packets that tap rules of the gate select, as waymark tap receives them"`
	MetadataTime bool     `yaml:"metadata_time" doc:"the receive time is among them: the kernel then merges no segments of TCP (GRO) on these interfaces, since each packet has another"`
}

const socketsTapped = "tapped"

// passes reports whether packets of an interface carry their hints on.
func (c *Config) passes(iface string) bool {
	return config.MatchAny(c.Metadata, iface)
}

var section = config.Register(config.Section[Config]{
	Name: name, Doc: "what network cards know of received packets, for stages at XDP and those behind it",
	On: func(c *Config) bool { return c.Use == "always" || len(c.Metadata) > 0 }, // by itself
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
		Text: stage.Text(name, (*Status).write),
	}
}

func newStage(cfg *config.Config, deps stage.Deps) (*stage.Stage, error) {
	own := section.Of(cfg)
	r := NewReader(&own, deps.Log)
	return &stage.Stage{
		Datapath: r.Stage(),
		Second:   r.Passing(),
		Status:   func() (any, error) { return r.status(deps.IfaceName) },
	}, nil
}

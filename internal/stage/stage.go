// Package stage is what the agent and the command line know of a stage of the
// packet path: how it follows from the configuration, what it registers in the
// datapath, what it reserves, and what it reports. Package list has all kinds of
// stages; nothing else refers to one by name.
package stage

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/internal/verdict"
)

// Kind is a stage that this program has, whether it is on or not. A nil field
// means that there is nothing of the sort.
type Kind struct {
	Name string // of its section in the configuration and in the status

	// On reports whether the configuration enables the stage. It then needs the
	// eBPF probe.
	On func(*config.Config) bool
	// Example is the least of a configuration that enables it, as YAML.
	Example string
	// New prepares a stage that is on; it opens and loads nothing.
	New func(*config.Config, Deps) (*Stage, error)
	// Memory is what the maps of a stage that is on take.
	Memory []Memory
	// Settle restores in the next configuration what a running agent cannot change.
	Settle func(running, next *config.Config)

	// Text writes the section for waymark status; nothing where there is none.
	Text func(io.Writer, *obs.Status) error
	// NoDelays is why records have no delays of the stage; empty: it has no reason.
	NoDelays func(*obs.Status) string
	// Off is the one-line form of it for an agent in which the stage is off.
	Off string
	// Counters are running totals that verdicts are made of (waymark why).
	Counters   func(*obs.Status) []verdict.Counter
	Metrics    []prometheus.Metric
	Histograms []prometheus.Histogram
	Streams    []api.Stream
	Pages      []api.Page
	Verbs      []Verb
}

// Deps are what a stage is given.
type Deps struct {
	Log       *slog.Logger
	IfaceName func(flow.Iface) (name, netns string)
	Headroom  *headroom.Keeper // to report what is reserved
}

// Stage is a stage that is on.
type Stage struct {
	Datapath *datapath.Stage
	// Second is another part in the kernel, which has work at other hooks.
	Second *datapath.Stage
	// Start is called once the datapath is loaded.
	Start func() error
	// Stop is called after the last drain.
	Stop func() error
	// Renew restarts what ends by itself after a time.
	Renew func() error
	// Reload checks the next configuration; apply makes it effective.
	Reload func(next *config.Config) (apply func() error, err error)
	// Rereads: Reload is called also where the section did not change, since a file that it names may have.
	Rereads bool
	// Need is the MTU headroom that the stage takes on an interface; false: none.
	Need func(topology.Link) (headroom.Need, bool)
	// Status is the section of the status: a pointer to the stage's own type.
	Status func() (any, error)
	// Events emits what a stream of the kind reports, by its path.
	Events map[string]func(ctx context.Context, emit func(api.Event)) error
	// Traces are the ids of this host as a node, and those of nodes that packets to it passed, from the first to the last, for
	// the topology.
	Traces func() (own []string, traces [][]string)
	// Pages answer what a page of the kind asks for, by its path.
	Pages map[string]func() (any, error)
	// Changes make a change to what a page shows, by its path.
	Changes map[string]func(json.RawMessage) (any, error)
}

// Memory is a map whose size is a key of the configuration, as a share of the
// memory that the agent plans with.
type Memory struct {
	memory.Share
	Size func(*config.Config) *uint32
}

// Verb is a command of waymark that shows what the agent reports.
type Verb struct {
	Name, Short, Long string
	Arg               string     // an argument that may follow, as help shows it; empty: none
	Explainer         *Explainer // nil: it has none
	Example           string     // of several lines
	Formats           []string   // of -o, the default first
	Options           []Option
	Run               func(ctx context.Context, c Call) error
}

// Option is a flag without a value.
type Option struct{ Name, Doc string }

// Call is a verb as a user called it.
type Call struct {
	Agent   *api.Client
	Out     io.Writer
	Format  string
	Arg     string          // empty: none was given
	Options map[string]bool // those given
}

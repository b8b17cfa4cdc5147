// Package list has every stage in addition to the flow cache: the one place that names
// them. The agent and the command line call it.
package list

import (
	"slices"

	"github.com/waymark-net/waymark/internal/api"
	balance "github.com/waymark-net/waymark/internal/balance/service"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	forward "github.com/waymark-net/waymark/internal/forward/service"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	ioam "github.com/waymark-net/waymark/internal/inband/ioam/service"
	pdm "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/stage"
)

// Kinds are all stages, in the order in which they are shown.
func Kinds() []stage.Kind {
	return []stage.Kind{pdm.Kind(), ioam.Kind(), hints.Kind(), gate.Kind(), forward.Kind(), balance.Kind()}
}

// On are the stages that a configuration enables.
func On(cfg *config.Config) []stage.Kind {
	return slices.DeleteFunc(Kinds(), func(k stage.Kind) bool { return !k.On(cfg) })
}

// Endpoints are those of all pages and streams.
func Endpoints() (all []api.Endpoint) {
	for _, k := range Kinds() {
		for _, p := range k.Pages {
			all = append(all, api.Endpoint{Path: p.Path, Doc: p.Doc})
		}
		for _, s := range k.Streams {
			all = append(all, api.Endpoint{Path: s.Path, Doc: s.Doc})
		}
	}
	return all
}

// Metrics are those of all stages.
func Metrics() (page prometheus.Page) {
	for _, k := range Kinds() {
		page.Metrics = append(page.Metrics, k.Metrics...)
		page.Histograms = append(page.Histograms, k.Histograms...)
	}
	return page
}

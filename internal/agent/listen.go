package agent

import (
	"context"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/flow"
)

// service is something that the agent serves.
type service interface {
	Listen() error
	Run(ctx context.Context) error
	Close()
}

// services are the API and the metrics of the configuration.
func (a *Agent) services() []service {
	out := []service{
		api.New(api.Config{Socket: a.cfg.API.Socket, Listen: a.cfg.API.Listen}, api.Deps{
			Origin: flow.Origin{Host: a.host, Sampling: a.cfg.Flow.Sampling},
			Store:  a.store, Status: a.Status, Ready: a.readiness, Hasten: a.pace.hasten, Freshen: a.freshen, Log: a.log,
			Metrics: prometheus.Handler(a.Status, a.log), Marks: a.streamMarks(),
		}),
	}
	for _, e := range a.cfg.Export {
		if e.Prometheus != nil {
			out = append(out, prometheus.New(prometheus.Config{Listen: e.Prometheus.Listen}, a.Status, a.log))
		}
	}
	return out
}

// listen binds everything, before anything is attached: a second agent on the
// same socket, or a port in use, ends the start here.
func listen(services []service) error {
	for i, s := range services {
		if err := s.Listen(); err != nil {
			for _, bound := range services[:i] {
				bound.Close()
			}
			return err
		}
	}
	return nil
}

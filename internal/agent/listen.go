package agent

import (
	"net/http"

	"github.com/waymark-net/waymark/internal/access"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/console"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/stage/list"
)

// api is the API of the configuration.
func (a *Agent) api() *api.Server {
	return api.New(api.Config{
		Socket: a.cfg.API.Socket, Group: a.cfg.API.Group, Listen: a.cfg.API.Listen, Profile: a.profile,
		Queries: 1 + int(a.budget.Count(shareQueries)), AnswerBytes: int(a.budget.Count(shareAnswers) * 4 / 5),
	}, api.Deps{
		Origin:  a.exports.origin,
		History: a.store, Status: a.Status, Ready: a.readiness, RequestScans: a.pace.request, Freshen: a.freshen, Why: a.why, Log: a.log,
		Metrics: prometheus.Handler(a.Status, list.Metrics(), a.log), Streams: append(a.stages.streams(), a.topologyChanges()), Topology: a.topology, Pages: append(a.stages.pages(), a.doctorPage()),
		Configuration: a.configuration, Console: pages(),
	})
}

// pages is the console; nil where the binary was built without.
func pages() http.Handler {
	if c, ok := console.New(); ok {
		return c
	}
	return nil
}

// listen binds everything, before anything is attached: a second agent on the
// same socket, or a port in use, ends the start here.
func (a *Agent) listen(server *api.Server) error {
	if listen := a.cfg.API.Listen; listen != "" {
		a.log.Warn(access.Unprotected(listen))
	}
	var err error
	a.console, err = access.New(&a.cfg, access.Deps{Handler: server.Handler(), Serve: server.Serve, Log: a.log})
	if err != nil {
		return err
	}
	for _, bind := range []func() error{server.Listen, a.console.Listen, a.exports.listen} {
		if err := bind(); err != nil {
			a.unlisten()
			return err
		}
	}
	return nil
}

// unlisten gives back what listen bound, when nothing is going to serve.
func (a *Agent) unlisten() {
	a.server.Close()
	a.console.Close()
	a.exports.close()
}

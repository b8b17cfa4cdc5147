// Package api answers queries of a running agent. Input: HTTP requests over a unix
// socket and, if configured, over loopback. Output: health, metrics, status and
// flows. Callers: the agent runs the Server, the command line uses the Client.
//
//	/livez /readyz        200, or why not
//	/metrics              Prometheus
//	/api/v1/status        obs.Status
//	/api/v1/flows         Answer; parameters as in Request
//	/api/v1/explain       query.Explanation of the same parameters
//	/api/v1/why           verdict.Answer; parameters as in WhyRequest
//	/api/v1/live          Answer for each interval, as server-sent events
//	/api/v1/complete      Completion of a filter
//	/api/v1/reference     Reference
//	/api/v1/config        Effective configuration
//	/ and other pages     Deps.Console
//	…                     events of Deps.Streams, one a line, as they come; Deps.Pages
package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// DoctorPath is where the API has what the agent found of its host.
const DoctorPath = "/api/v1/doctor"

// Endpoint is a path that the API answers.
type Endpoint struct{ Path, Doc string }

// Endpoints are all of them.
func Endpoints() []Endpoint {
	return []Endpoint{
		{"/livez", "`ok` while the agent runs"},
		{"/readyz", "`ok` while everything that is configured is counted, else 503 with the reason: starting, an interface or namespace that is named is missing, no interface matches, a hook failed"},
		{"/metrics", "[Metrics](metrics.md) in the text format of Prometheus, where an exporter `prometheus` is configured"},
		{"/api/v1/status", "How the agent does, as `waymark status -o json` shows it"},
		{"/api/v1/config", "The effective configuration, as YAML, and the keys that variables and flags set"},
		{"/api/v1/flows", "Flows of the past, as `waymark flows -o json` shows them; where the history covers less than `since`, the field `incomplete` and the header `Waymark-Incomplete` say why: `history` or `started`; where not all records could be read, the field `partial` and the header `Waymark-Partial` say so"},
		{"/api/v1/explain", "What the same parameters would take, without asking: intervals, records and bytes to read in memory and on disk"},
		{livePath, "Flows of each interval as it ends, as server-sent events; parameters as of /api/v1/flows with `follow`. The identity of an event is the end of its interval; with the header `Last-Event-ID`, what ended since then comes first"},
		{completePath, "For a `filter` that is being written: what is wrong with it, and where, in bytes; what may follow it"},
		{referencePath, "Fields of filters, keys to group by, what sorts, parameters, paths and rules of verdicts"},
		{topologyPath, "What is connected with what, as `waymark topology -o json` shows it; parameter `at`: at that time, written as `since`. Of an analyzer: `hosts`, `links` between them, and what is `ambiguous`, of now"},
		{TopologyChangesPath, TopologyChangesDoc},
		{DoctorPath, "What the agent found of this kernel and of its privileges when it started: the `checks` of `waymark doctor -o json`"},
		{whyPath, "What is slow or broken, and why, as `waymark why -o json` shows it"},
		{pointsPath, "Of an analyzer: the way of each flow over its hosts, with the packets that each link and each host lost, as `waymark points -o json` shows it; parameters as of /api/v1/why"},
	}
}

// Config says where the API is served.
type Config struct {
	Socket string // path of the unix socket
	Group  string // that may use it; empty: the group of the process
	Listen string // loopback host:port; empty: none
	// Profile serves /debug/pprof/ to root and the agent's own user, on the socket.
	Profile bool

	Queries     int // answered at the same time; more wait; 0: the default
	AnswerBytes int // of answers that followers have not read yet; 0: the default
}

// Default serves on the unix socket alone.
func Default() Config {
	return Config{Socket: "/run/waymark/agent.sock", Queries: 4, AnswerBytes: 16 << 20}
}

// History is what flows are read from. store.Store keeps one in memory.
type History interface {
	// Query answers from what is kept.
	Query(ctx context.Context, p query.Plan) (query.Answer, error)
	// Explain says what a plan will take.
	Explain(p query.Plan) (query.Explanation, error)
	// Follow calls emit with each interval that ends after it called began, until ctx
	// ends or emit fails.
	Follow(ctx context.Context, began func(), emit func(store.Period) error) error
}

// Deps are what the answers are made of.
type Deps struct {
	Origin  flow.Origin
	History History
	Status  func() obs.Status
	Ready   func() error // nil once flows are counted, else what is missing
	// Why finds verdicts; the request is checked. Nil: /api/v1/why is not found.
	Why func(context.Context, WhyRequest) (any, error)
	// Points finds the ways of flows over several hosts; the request is checked. Nil: /api/v1/points is not found.
	Points func(context.Context, WhyRequest) (any, error)
	// Topology is what was connected with what at a moment; the zero time: now. Nil: /api/v1/topology is not found.
	Topology func(at time.Time) (any, error)
	// Configuration is the one in force. Nil: /api/v1/config is not found.
	Configuration func() (Configuration, error)
	Console       http.Handler // of pages; nil: this binary has none
	Metrics       http.Handler // nil: /metrics is not found
	Streams       []Stream     // of stages
	Pages         []Page       // likewise
	// RequestScans asks for drains at least this often until release is called. Nil:
	// those who follow get the scan interval.
	RequestScans func(every time.Duration) (release func())
	// Freshen is called before a query is answered; it returns when the store
	// holds what the first scan interval has brought so far. Nil: nothing to do.
	Freshen func(ctx context.Context)
	Log     *slog.Logger
}

// Error is what the API answers when it has to refuse.
type Error struct {
	Status int    `json:"-"`             // of HTTP
	What   string `json:"what"`          // what is wrong
	How    string `json:"how,omitempty"` // what to do about it, where What does not say it
}

func (e *Error) Error() string {
	if e.How == "" {
		return e.What
	}
	return e.What + "; " + e.How
}

func writeError(w http.ResponseWriter, e *Error) { e.Answer(w) }

// Answer sends the error as the answer.
func (e *Error) Answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	// The reader may be gone; there is no one else to tell.
	_ = json.NewEncoder(w).Encode(e)
}

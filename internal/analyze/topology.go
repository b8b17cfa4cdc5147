package analyze

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/analyze/join"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/topology/joined"
	"github.com/waymark-net/waymark/internal/topology/timeline"
)

// topologyFile is among the files of a host. It has what the host sent last.
const topologyFile = "topology.json.gz"

// mostTopology is how many bytes of JSON a topology may be.
const mostTopology = 16 << 20

// network is what hosts say of what they are connected with, as one.
type network struct {
	mu    sync.Mutex
	whole *joined.Topology // nil: it was not made yet
	stale bool             // something came since
	made  time.Time
	took  time.Duration
}

// rest is how many times as long as joining takes nothing is joined again: hosts may send all the time.
const rest = 10

// describe takes the topology of a host.
func (a *Analyzer) describe(w http.ResponseWriter, r *http.Request) {
	h := a.admit(w, r)
	if h == nil {
		return
	}
	refused, wait := a.receive(r, h, frame.MostTopology, func(body []byte) *refusal { return a.learn(h, body) })
	if refused == nil {
		h.mu.Lock()
		h.isNot("topology")
		h.mu.Unlock()
		writeJSON(w, http.StatusOK, frame.Answer{})
		return
	}
	h.refused(refused)
	if wait == 0 {
		h.mu.Lock()
		h.is("topology", "its topology is not known here: "+refused.Error.Error())
		h.mu.Unlock()
	}
	answerLater(w, refused, wait, 0)
}

// refusedTopology is the reason why a topology is not taken.
const refusedTopology = "topology"

// learn keeps a topology; h.keeping is held.
func (a *Analyzer) learn(h *host, body []byte) *refusal {
	g, err := timeline.Unpack(body, mostTopology)
	if err != nil {
		return refuse(refusedTopology, http.StatusUnprocessableEntity, err.Error(), "upgrade the older one of agent and analyzer; set topology.neighbours of a host with more than 16 MiB to less")
	}
	if err := join.WriteWhole(a.topologyPath(h.name), body, 0o640); err != nil {
		return refuse(refusedTopology, http.StatusInsufficientStorage, "keep a topology: "+err.Error(), remedyOf(err))
	}
	h.describe(body, &g)
	a.network.mu.Lock()
	a.network.stale = true
	a.network.mu.Unlock()
	return nil
}

func (a *Analyzer) topologyPath(name string) string {
	return filepath.Join(a.cfg.Path, "hosts", name, topologyFile)
}

// describe notes what a host says of itself.
func (h *host) describe(body []byte, g *timeline.Graph) {
	said := joined.Of(h.name, g)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said, h.saidSum, h.state.Topology = said, frame.Checksum(body), g.Since
}

// recall reads what a host said before the analyzer started. It is sent again where it cannot be read.
func (a *Analyzer) recall(h *host) {
	body, err := os.ReadFile(a.topologyPath(h.name))
	if err == nil {
		var g timeline.Graph
		if g, err = timeline.Unpack(body, mostTopology); err == nil {
			h.describe(body, &g)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("the topology of a host is not known until it sends it again", "host", h.name, "error", err)
	}
}

// joined is the topology of all hosts. Who asks while it is made waits for it.
func (a *Analyzer) joined() *joined.Topology {
	n := &a.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.whole == nil || n.stale && time.Since(n.made) > rest*n.took {
		began := time.Now()
		var list []*joined.Host
		for _, h := range a.agents() {
			h.mu.Lock()
			said := h.said
			h.mu.Unlock()
			if said == nil {
				said = joined.Of(h.name, &timeline.Graph{})
			}
			list = append(list, said)
		}
		n.whole, n.stale, n.made = joined.Join(list), false, time.Now()
		n.took = n.made.Sub(began)
	}
	return n.whole
}

// topologyAnswer is what the API shows: the picture of what is joined, and what it was made of.
type topologyAnswer struct {
	Host string    `json:"host"`
	At   time.Time `json:"at"`
	timeline.Graph
	joined.Topology
}

// topology implements api.Deps.Topology.
func (a *Analyzer) topology(at time.Time) (any, error) {
	if !at.IsZero() {
		return nil, fmt.Errorf("an analyzer has the topology of now only: ask the agent of a host for the past")
	}
	t := a.joined()
	return topologyAnswer{a.name, a.clock(), t.Picture(), *t}, nil
}

// linksOf are those that order points of flows.
func linksOf(t *joined.Topology) (list []hops.Link) {
	for _, l := range t.Exact() {
		list = append(list, hops.Link{A: endOf(l.A), B: endOf(l.B)})
	}
	return list
}

func endOf(e joined.End) hops.End {
	return hops.End{Node: hops.Node{Host: e.Host, Netns: e.Netns}, Iface: e.Iface}
}

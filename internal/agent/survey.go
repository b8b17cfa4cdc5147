package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/internal/topology/lldp"
	"github.com/waymark-net/waymark/internal/topology/timeline"
)

// survey follows what is connected with what.
type survey struct {
	cfg      timeline.Config
	timeline *timeline.Timeline
	meter    timeline.Meter
	recent   timeline.Recent
	lldp     *lldp.Receiver // nil: announcements are not received
	noLLDP   string         // why
	read     uint64         // changes of what was read last
	wired    uint64         // likewise, of links alone
}

// surveyEvery is how often the agent looks whether something has changed; settleEvery, how often it reads everything though
// nothing did, for neighbours that were seen too long ago.
const (
	surveyEvery = time.Second
	settleEvery = time.Minute
)

// openSurvey takes what needs privileges, and reads the past.
func (a *Agent) openSurvey() {
	cfg := timeline.Section.Of(&a.cfg)
	s := &survey{cfg: cfg, timeline: timeline.New(int(cfg.Size)), noLLDP: "topology.lldp is never"}
	if cfg.LLDP != "never" {
		var err error
		if s.lldp, err = lldp.Open(a.clock); err != nil {
			s.noLLDP = err.Error() + "; it takes CAP_NET_RAW"
			a.log.Debug("announcements of neighbours are not received", "reason", err)
		}
	}
	a.survey = s
	if a.disk == nil {
		return
	}
	path := filepath.Join(historyPath(&a.cfg.History), timelineFile)
	switch torn, err := s.timeline.Keep(path); {
	case err != nil:
		a.log.Warn("the topology is kept in memory only", "error", err)
	case torn > 0:
		a.log.Warn("the end of the file of the topology was not written in full", "path", path, "bytes", torn)
	}
}

// timelineFile is in the directory of the history; zcat reads it.
const timelineFile = "topology.jsonl.gz"

// runSurvey reads the network when something changed, until ctx ends.
func (a *Agent) runSurvey(ctx context.Context) error {
	s := a.survey
	if s.lldp != nil {
		go func() {
			if err := s.lldp.Run(ctx); err != nil {
				a.log.Warn("announcements of neighbours are no longer received", "error", err)
			}
		}()
	}
	ticker := time.NewTicker(surveyEvery)
	defer ticker.Stop()
	var settled, metered time.Time
	for {
		now := a.clock()
		if s.isDue(a.registry, now.Sub(settled), a.pace.current()) {
			settled = now
			if err := a.noteTopology(now); err != nil {
				a.log.Warn("reading the topology", "error", err)
			}
		}
		if now.Sub(metered) >= a.pace.current() {
			metered = now
			if counters, err := a.registry.Traffic(); err == nil {
				s.meter.Note(now, counters)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// isDue reports whether to read again, some time after the last reading. Neighbours change all the time, and are read once in a
// scan interval.
func (s *survey) isDue(r *topology.Registry, since, scan time.Duration) bool {
	links, all := r.Changes(), s.changes(r)
	if links == s.wired && (all == s.read || since < scan) && since < settleEvery {
		return false
	}
	s.wired, s.read = links, all
	return true
}

// changes is another number when anything may have changed.
func (s *survey) changes(r *topology.Registry) uint64 {
	n := r.Touched()
	if s.lldp != nil {
		announced, _ := s.lldp.Changes()
		n += announced
	}
	return n
}

// noteTopology reads everything, and notes it.
func (a *Agent) noteTopology(now time.Time) error {
	s := a.survey
	links, err := a.registry.Graph()
	if err != nil {
		return err
	}
	if len(links.Netns) == 0 { // the watcher has not begun
		return nil
	}
	links.Neighbours = s.recent.Merge(now, links.Neighbours)
	sources := timeline.Sources{Host: a.host, Links: links, Neighbours: int(s.cfg.Neighbours), Announced: s.announced(&links)}
	for _, one := range a.stages.all {
		if one.Traces != nil {
			own, traces := one.Traces()
			sources.Own, sources.Traces = append(sources.Own, own...), append(sources.Traces, traces...)
		}
	}
	_, err = s.timeline.Note(now, timeline.Build(sources))
	return err
}

// announced are those who announce themselves, on interfaces of the own namespace.
func (s *survey) announced(links *topology.Graph) (list []timeline.Announcement) {
	if s.lldp == nil {
		return nil
	}
	var ports []uint32
	for _, n := range links.Nodes {
		if n.Netns == "" && (n.Kind == "physical" || n.Kind == "veth") && n.LinkType == "ether" {
			ports = append(ports, n.IfIndex)
		}
	}
	s.lldp.Join(ports)
	for _, n := range s.lldp.Neighbours() {
		list = append(list, timeline.Announcement{IfIndex: n.IfIndex, Chassis: n.Chassis, MAC: n.MAC, Name: n.Name, Port: n.Port, Addr: n.Addr})
	}
	return list
}

// topologyAnswer is what the API shows. Use is that of now; of the past, there are flows.
type topologyAnswer struct {
	Host string    `json:"host"`
	At   time.Time `json:"at"`
	timeline.Graph
	Use    []timeline.Use `json:"use,omitempty"`
	Status obs.Topology   `json:"status"`
}

func (a *Agent) topology(at time.Time) (any, error) {
	s := a.survey
	g, err := s.timeline.At(at)
	if err != nil {
		return nil, err
	}
	answer := topologyAnswer{Host: a.host, At: at, Graph: g, Status: *s.status()}
	if at.IsZero() {
		answer.At = a.clock()
		answer.Use = s.meter.Use(&g, a.speed)
	}
	return answer, nil
}

func (s *survey) status() *obs.Topology {
	status := s.timeline.Status()
	status.LLDP = "received"
	if s.lldp == nil {
		status.LLDP = s.noLLDP
	}
	return &status
}

// topologyChanges is the stream of changes.
func (a *Agent) topologyChanges() api.Stream {
	return api.Stream{Path: api.TopologyChangesPath, Doc: api.TopologyChangesDoc, Run: func(ctx context.Context, emit func(api.Event)) error {
		return a.survey.timeline.Follow(ctx, func(c timeline.Change) { emit(c) })
	}}
}

package analyze

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/export/analyzer"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/internal/topology/joined"
	"github.com/waymark-net/waymark/internal/topology/timeline"
	"github.com/waymark-net/waymark/test/await"
)

// surveyed is the network of a host, as its agent follows it.
type surveyed struct {
	host     string
	sources  timeline.Sources
	timeline *timeline.Timeline
}

func survey(host string, ifaces ...string) *surveyed {
	v := &surveyed{host: host, timeline: timeline.New(64 << 20)}
	v.sources = timeline.Sources{Host: host, Neighbours: 1 << 16, Links: topology.Graph{Netns: []string{""}}}
	for i, name := range ifaces {
		v.sources.Links.Nodes = append(v.sources.Links.Nodes, topology.Node{Link: topology.Link{Name: name, Kind: "physical", IfIndex: uint32(i + 1), MAC: macOf(host, name)}})
	}
	return v
}

func macOf(host, iface string) string {
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", host[0], host[len(host)-1], iface[0], iface[len(iface)-1])
}

// sees puts an interface of another host on a link.
func (v *surveyed) sees(index uint32, host, iface string) {
	v.sources.Links.Neighbours = append(v.sources.Links.Neighbours, topology.Neighbour{
		IfIndex: index, MAC: macOf(host, iface), Addr: netip.MustParseAddr("192.0.2.9"), Source: topology.ARP,
	})
}

func (v *surveyed) note(t *testing.T) *surveyed {
	t.Helper()
	if _, err := v.timeline.Note(time.Now(), timeline.Build(v.sources)); err != nil {
		t.Fatal(err)
	}
	return v
}

// shows is the setting of an exporter that sends it.
func (v *surveyed) shows(cfg *analyzer.Config) {
	cfg.Topology, cfg.TopologyEvery = v.timeline.Newest, 0
}

// links are those that the analyzer answers.
func (s *scene) links(t *testing.T) (list []string) {
	t.Helper()
	var answer struct {
		timeline.Graph
		joined.Topology
	}
	if err := api.NewClient(filepath.Join(s.dir, "s")).Topology(context.Background(), "", &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Edges) != len(answer.Links) {
		t.Errorf("%d edges of %d links", len(answer.Edges), len(answer.Links))
	}
	for _, l := range answer.Links {
		list = append(list, l.A.String()+" - "+l.B.String())
	}
	return list
}

// TestTopology has agents send what they are connected with: the newest counts, also after the analyzer began again.
func TestTopology(t *testing.T) {
	s := newScene(t)
	_, stop := s.start(t)
	athos, porthos := survey("athos", "eth0"), survey("porthos", "eth0", "eth1")
	athos.sees(1, "porthos", "eth1")
	var agents []*pusher
	for _, v := range []*surveyed{athos.note(t), porthos.note(t)} {
		p := s.pusher(t, s.certificate(t, v.host), filepath.Join(t.TempDir(), "queue"), v.shows)
		agents = append(agents, p)
		p.interval(1)
	}
	become := func(want ...string) {
		t.Helper()
		await.True(t, "the links "+strings.Join(want, ", "), func() bool { return slices.Equal(s.links(t), want) })
	}
	become("athos eth0 - porthos eth1")
	if err := api.NewClient(filepath.Join(s.dir, "s")).Topology(context.Background(), "1h", &joined.Topology{}); err == nil {
		t.Error("an analyzer answers for the past")
	}
	athos.sources.Links.Neighbours = nil
	athos.note(t)
	porthos.sees(1, "athos", "eth0")
	porthos.note(t)
	for _, p := range agents {
		p.interval(1)
	}
	become("athos eth0 - porthos eth0")
	stop()
	_, stop = s.start(t)
	if got := s.links(t); !slices.Equal(got, []string{"athos eth0 - porthos eth0"}) {
		t.Errorf("after the analyzer began again: %q", got)
	}
	stop()
	for _, host := range []string{"athos", "porthos"} {
		if err := os.WriteFile(filepath.Join(s.dir, "hosts", host, topologyFile), []byte("torn"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.start(t)
	become()
	for _, p := range agents { // they send again what the analyzer does not have
		p.interval(1)
	}
	become("athos eth0 - porthos eth0")
}

// TestTopologyRefused: what is too large or unreadable is refused, counted and reported at both ends; records are kept.
func TestTopologyRefused(t *testing.T) {
	s := newScene(t)
	a, _ := s.start(t)
	large := make([]byte, frame.MostTopology+1)
	_, _ = rand.Read(large)
	for host, body := range map[string][]byte{"athos": large, "porthos": large[:1000]} {
		p := s.pusher(t, s.certificate(t, host), filepath.Join(t.TempDir(), "queue"), func(cfg *analyzer.Config) {
			cfg.Topology, cfg.TopologyEvery = func() []byte { return body }, 0
		})
		p.interval(5)
		p.delivered(t)
		await.True(t, "the refusal at the agent", func() bool { return strings.Contains(p.exporter.Status().LastError, "topology") })
	}
	status, err := api.NewClient(filepath.Join(s.dir, "s")).Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range obs.SectionOf[state.Status](&status, state.Section).Hosts {
		if h.Refused["topology"] == 0 || h.Records != 5 || !slices.ContainsFunc(h.Problems, func(text string) bool { return strings.Contains(text, "topology") }) {
			t.Errorf("%+v", h)
		}
	}
	if err := a.readiness(); err != nil {
		t.Errorf("not ready, because of a topology: %v", err)
	}
}

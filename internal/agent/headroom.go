package agent

import (
	"log/slog"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/topology"
)

// newHeadroom keeps MTU headroom for the packets that policies mark. Without any
// it reserves nothing, and still restores what a killed agent reduced.
func newHeadroom(cfg config.PDM, policies []policy.Policy, registry *topology.Registry, log *slog.Logger) *headroom.Keeper {
	c := headroom.Config{Mode: headroom.None, File: headroom.DefaultFile}
	if len(policies) > 0 {
		c.Mode, c.Packets = headroom.Mode(cfg.Reserve), cfg.Mode == "packet"
	}
	for _, p := range policies {
		c.Prefixes = append(c.Prefixes, p.To)
	}
	return headroom.New(c, headroom.Deps{Log: log, In: func(netns string, f func() error) error {
		return inNetns(registry, netns, f)
	}})
}

// inNetns enters a namespace that the registry holds open, or else by its name:
// after a crash, nothing is open yet.
func inNetns(registry *topology.Registry, netns string, f func() error) error {
	for _, l := range registry.Links() {
		if l.Netns == netns {
			return registry.InNetns(l.Iface.Netns(), f)
		}
	}
	return topology.InNetns(netns, f)
}

// recoverHeadroom restores what a killed agent reduced. That it cannot be done is
// no reason not to count.
func (a *Agent) recoverHeadroom() {
	if _, err := a.headroom.Recover(); err != nil {
		a.log.Error("settings that a killed agent reduced are not restored", "error", err)
	}
}

func headroomLink(l topology.Link) headroom.Link {
	return headroom.Link{Netns: l.Netns, Name: l.Name, Index: int(l.IfIndex)}
}

// prepare reserves headroom on an interface before anything is attached to it.
// What does not fit is not marked, but counted all the same.
func (m *marking) prepare(l topology.Link) {
	if m == nil || !m.marks(l) {
		return
	}
	if err := m.headroom.Reserve(headroomLink(l)); err != nil {
		m.log.Warn("no MTU headroom for marks: packets that would not fit pass unmarked", "iface", l.String(), "reason", err)
	}
}

// release restores the settings of an interface, which may be gone.
func (m *marking) release(l topology.Link) {
	if m == nil {
		return
	}
	if err := m.headroom.Release(headroomLink(l)); err != nil {
		m.log.Error("a setting that was reduced for marks is not restored", "iface", l.String(), "error", err)
	}
}

// rename follows an interface's name, by which policies choose it.
func (m *marking) rename(l topology.Link) {
	if m == nil {
		return
	}
	if m.marks(l) {
		m.prepare(l)
	} else {
		m.release(l)
	}
}

// keep reserves again where something else took the headroom.
func (m *marking) keep() {
	if m != nil {
		m.headroom.Keep()
	}
}

// reduced lists the settings that are lower while packets are marked.
func (m *marking) reduced() []obs.Reduction {
	reduced, _ := m.headroom.Status()
	out := make([]obs.Reduction, 0, len(reduced))
	for _, r := range reduced {
		out = append(out, obs.Reduction{Iface: r.Name, Netns: r.Netns, Setting: r.Setting, Route: r.Route, From: r.From, To: r.To})
	}
	return out
}

// problems are why there is no headroom, by interface.
func (m *marking) problems() map[headroom.Link]string {
	if m == nil {
		return nil
	}
	_, problems := m.headroom.Status()
	out := make(map[headroom.Link]string, len(problems))
	for _, p := range problems {
		out[p.Link] = "packets that would not fit pass unmarked: " + p.Err.Error()
	}
	return out
}

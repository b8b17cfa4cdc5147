package agent

import (
	"log/slog"

	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/topology"
)

// newHeadroom keeps MTU headroom for what stages add to packets. Where none adds
// anything it still restores what a killed agent reduced.
func newHeadroom(registry *topology.Registry, log *slog.Logger) *headroom.Keeper {
	return headroom.New(headroom.Default(), headroom.Deps{Log: log, In: func(netns string, f func() error) error {
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

// reservations are the MTU headroom of interfaces: the sum of what stages need.
type reservations struct {
	keeper *headroom.Keeper
	stages []*stage.Stage
	log    *slog.Logger
}

// needs are what the stages take on an interface.
func (r *reservations) needs(l topology.Link) (all []headroom.Need) {
	for _, s := range r.stages {
		if s.Need == nil {
			continue
		}
		if n, ok := s.Need(l); ok {
			all = append(all, n)
		}
	}
	return all
}

// prepare reserves headroom on an interface before anything is attached to it, or
// again after its name changed. What does not fit is counted all the same.
func (r *reservations) prepare(l topology.Link) {
	if r == nil {
		return
	}
	needs := r.needs(l)
	if len(needs) == 0 {
		r.release(l)
		return
	}
	if err := r.keeper.Reserve(headroomLink(l), needs...); err != nil {
		r.log.Warn("no MTU headroom: "+headroom.Without(needs), "iface", l.String(), "reason", err)
	}
}

// release restores the settings of an interface, which may be gone.
func (r *reservations) release(l topology.Link) {
	if r == nil {
		return
	}
	if err := r.keeper.Release(headroomLink(l)); err != nil {
		r.log.Error("a setting that was reduced for MTU headroom is not restored", "iface", l.String(), "error", err)
	}
}

// problems are why there is no headroom, by interface.
func (r *reservations) problems() map[headroom.Link]string {
	if r == nil {
		return nil
	}
	_, problems := r.keeper.Status()
	out := make(map[headroom.Link]string, len(problems))
	for _, p := range problems {
		out[p.Link] = p.Without + ": " + p.Err.Error()
	}
	return out
}

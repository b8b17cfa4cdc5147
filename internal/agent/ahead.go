package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
)

// inspectAll looks at what runs before the hooks on all interfaces.
func (h *hooks) inspectAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.attached {
		if at.err == nil && !h.frozen {
			h.inspect(at)
		}
	}
}

// inspect notes the programs of others that run before the hooks of an interface,
// and warns of new ones.
func (h *hooks) inspect(at *attachment) {
	p, ok := h.probe.(interface {
		Ahead(flow.Iface) (map[flow.Direction][]string, error)
	})
	if !ok {
		return
	}
	ahead, err := p.Ahead(at.link.Iface)
	if err != nil {
		h.log.Debug("programs before the hook are not known", "iface", at.link.String(), "error", err)
		return
	}
	for direction, names := range ahead {
		if !slices.Equal(names, at.ahead[direction]) {
			h.log.Warn("other programs run before the hook: packets for which they end the chain are not counted",
				"iface", at.link.String(), "direction", direction.String(), "programs", strings.Join(names, ", "))
		}
	}
	at.ahead = ahead
}

// bypass notices that an interface counts packets and the hook sees none.
type bypass struct {
	ours, theirs uint64 // when the hook saw the last packet
	found        bool
}

// bypassed is how many packets an interface counts without any at the hook, until
// traffic is said to bypass it. Frames that never reach tc are fewer.
const bypassed = 1000

// note takes in what both have counted by now, and reports a change.
func (b *bypass) note(ours, theirs uint64) (changed bool) {
	was := b.found
	if ours != b.ours || theirs < b.theirs {
		*b = bypass{ours: ours, theirs: theirs}
	} else {
		b.found = theirs-b.theirs >= bypassed
	}
	return b.found != was
}

// noteBypass compares what a hook saw with the counters of its interface.
func (h *hooks) noteBypass(at *attachment, direction flow.Direction, s seen) {
	ours := s.flows.Frames
	for _, r := range s.uncounted {
		ours += r.Frames
	}
	c := at.draining.low
	theirs := c.RxPackets
	if direction == flow.Egress {
		theirs = c.TxPackets
	}
	b := at.bypass[direction]
	if b == nil {
		b = &bypass{ours: ours, theirs: theirs}
		at.bypass[direction] = b
	}
	switch changed := b.note(ours, theirs); {
	case changed && b.found:
		h.log.Warn("traffic bypasses the hook: the interface counts packets, and none reaches it",
			"iface", at.link.String(), "direction", direction.String(), "programs_before", strings.Join(at.ahead[direction], ", "))
	case changed:
		h.log.Info("traffic reaches the hook again", "iface", at.link.String(), "direction", direction.String())
	}
}

// warning is why packets may be missing at a hook that is in place, or marks.
func (at *attachment) warning(direction flow.Direction, problems map[headroom.Link]string) string {
	var all []string
	if b := at.bypass[direction]; b != nil && b.found {
		all = append(all, "traffic bypasses it: the interface counts packets, and none is seen")
	}
	if names := at.ahead[direction]; len(names) > 0 {
		all = append(all, fmt.Sprintf("behind %s: packets for which that ends the chain are not counted", strings.Join(names, ", ")))
	}
	if p := problems[headroomLink(at.link)]; p != "" && direction == flow.Egress {
		all = append(all, p)
	}
	return strings.Join(all, "; ")
}

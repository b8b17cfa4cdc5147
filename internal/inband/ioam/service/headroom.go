package service

import (
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/topology"
)

// need is the largest insertion where packets get options.
func (s *service) need(l topology.Link) (headroom.Need, bool) {
	cfg := s.current()
	node := cfg.node()
	if l.Kind == "loopback" || !node.Inserts(l.Name) {
		return headroom.Need{}, false
	}
	n := headroom.Need{
		Key: "ioam.reserve", Mode: headroom.Mode(cfg.Reserve), Bytes: node.Reserve(),
		Without: "packets that would not fit get no IOAM options",
	}
	for _, in := range node.Insertions {
		if in.Tunnel == nil {
			n.Prefixes = append(n.Prefixes, in.Policy.To)
		}
	}
	return n, true
}

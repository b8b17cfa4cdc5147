package service

import (
	"fmt"

	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/verdict"
)

// counters are the times of nodes and of links between them, of the paths with the most packets.
func counters(s *obs.Status) (out []verdict.Counter) {
	eachPath(s, func(p *inbandioam.Path) {
		for i := range p.Hops {
			h := &p.Hops[i]
			where := verdict.Where{Path: p.ID.String(), Nodes: p.Nodes(), Hop: i + 1, Src: p.Source.Unmap(), Dst: p.Destination.Unmap()}
			out = appendTimes(out, &h.Transit.All, where)
			where.Link = true
			if h.Relative {
				where.Reason = verdict.Relative
			}
			out = appendTimes(out, &h.Link.All, where)
		}
	})
	return out
}

func appendTimes(out []verdict.Counter, t *inbandioam.Times, where verdict.Where) []verdict.Counter {
	if t.Count == 0 {
		return out
	}
	return append(out, verdict.Counter{
		Kind: verdict.PathDelay, ID: fmt.Sprintf("%s %d %v", where.Path, where.Hop, where.Link), N: t.Count, Of: t.Sum, Where: where,
	})
}

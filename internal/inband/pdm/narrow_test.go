package pdm

import (
	"testing"

	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// Paths that take less than an interface does, or no marked packets, and report nothing.
func TestMarksOnNarrowPaths(t *testing.T) {
	paths := append(marktest.NarrowPaths(ipv6.Destination),
		marktest.Path{Name: "9000 and 1500, packets", MTU: [2]int{9000, 1500}, Box: marktest.Middlebox{Longest: 1500}, Reserve: headroom.Interface, Packets: true},
		marktest.Path{Name: "1492, clamped, packets", MTU: [2]int{1500, 1500}, MSS: 1432, Box: marktest.Middlebox{Longest: 1492}, Reserve: headroom.Interface, Packets: true, Narrow: true},
		marktest.Path{Name: "route of 1400, packets", MTU: [2]int{1500, 1500}, Route: 1400, Box: marktest.Middlebox{Longest: 1400}, Reserve: headroom.Interface, Packets: true},
		marktest.Path{Name: "options dropped, packets", MTU: [2]int{1500, 1500}, Box: marktest.Middlebox{Drops: true, Header: ipv6.Destination}, Reserve: headroom.None, Packets: true, Falls: true},
	)
	for _, p := range paths {
		t.Run(p.Name, func(t *testing.T) {
			p.Run(t, func(t *testing.T, h *lab.Host) func() marktest.Outcome {
				cfg := unlimited()
				cfg.Packets = p.Packets
				m := mark(t, h, cfg, p.Reserve)
				return func() marktest.Outcome {
					m.drain(t)
					s, err := m.marker.Stats()
					if err != nil {
						t.Fatal(err)
					}
					return marktest.Outcome{Marked: s.Marked, Fallbacks: s.Fallbacks, Blocked: s.Blocked, Narrowed: s.Narrowed, Passed: m.unmarked()}
				}
			})
		})
	}
}

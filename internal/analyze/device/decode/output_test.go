package decode

import (
	"github.com/waymark-net/waymark/internal/flow"
)

// gathered is an Output that remembers.
type gathered struct {
	flows   []flow.Delta
	ifaces  [][2]uint32
	names   map[uint32]string
	rate    float64
	counted map[Reason]uint64
}

func newGathered() *gathered {
	return &gathered{names: map[uint32]string{}, counted: map[Reason]uint64{}}
}

func (g *gathered) Flow(d *flow.Delta, iface, other uint32) {
	g.flows = append(g.flows, *d)
	g.ifaces = append(g.ifaces, [2]uint32{iface, other})
}
func (g *gathered) Interface(index uint32, name string) { g.names[index] = name }
func (g *gathered) Sampled(n float64)                   { g.rate = n }
func (g *gathered) Count(why Reason, n uint64)          { g.counted[why] += n }

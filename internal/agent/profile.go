package agent

import (
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
)

// profile is the sizes where the configuration sets none.
type profile struct {
	flows, ring, history, queue size
	queries, answers            uint64 // see Plan
	stages                      uint64 // sizes of stages are divided by this
	garbage                     int    // growth of the heap between two collections, in percent
	trims                       bool   // gives back code that does not run
}

// size is a number of elements.
type size uint64

// want is the value of a key, or that of the profile where the key has its
// default; most is above which a value must fit.
func (s size) want(value, def uint64) (want, most uint64) {
	if value == def {
		return uint64(s), uint64(s)
	}
	return value, def
}

// profileOf is the profile that a configuration names.
func profileOf(cfg *config.Config) profile {
	def := config.Default()
	if cfg.Profile == "small" {
		return profile{flows: 4096, ring: 256 << 10, history: 4096, queue: 4096, queries: 1, answers: 1 << 20, stages: 64, garbage: 25, trims: true}
	}
	p := profile{
		flows: size(datapath.DefaultMaxEntries()), ring: 4 << 20, history: size(def.API.History),
		queue: defaultQueue, queries: 3, answers: 16 << 20, stages: 1, garbage: 100,
	}
	if probeKind(*cfg) == "afpacket" {
		p.ring = 16 << 20
	}
	return p
}

package verdict

import (
	"time"

	"github.com/waymark-net/waymark/internal/config"
)

// Thresholds are those of the configuration, as numbers.
type Thresholds struct {
	Compare                     time.Duration
	Unusual                     float64
	Samples                     uint64
	Share                       float64
	ServerDelay, PathDelay      time.Duration
	PathLoss, LinkUse           float64
	Unanswered, Retransmissions float64
	GateDrops, AgentLosses      uint64
	Coverage                    float64
}

// ThresholdsOf reads a section that was checked.
func ThresholdsOf(c *config.Why) Thresholds {
	share := func(text string) float64 {
		v, _ := config.ParsePercent(text) // checked when it was read
		return v
	}
	return Thresholds{
		Compare: c.Compare, Unusual: float64(c.Unusual), Samples: uint64(c.Samples), Share: share(c.Share),
		ServerDelay: c.ServerDelay, PathDelay: c.PathDelay, PathLoss: share(c.PathLoss), LinkUse: share(c.LinkUse),
		Unanswered: share(c.Unanswered), Retransmissions: share(c.Retransmissions),
		GateDrops: uint64(c.GateDrops), AgentLosses: uint64(c.AgentLosses), Coverage: share(c.Coverage),
	}
}

// unusual reports whether a delay exceeds the usual one by enough; known: there is a usual one.
func (t *Thresholds) unusual(value, usual, least time.Duration) bool {
	return float64(value) >= t.Unusual*float64(usual) && value-usual >= least
}

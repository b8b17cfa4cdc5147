package gate

import "time"

// leastSample is the time that rates are of at least.
const leastSample = time.Second

// rates are the counters of rules at two times.
type rates struct{ before, last sample }

type sample struct {
	at    time.Time
	rules map[uint32]Counts
}

// sample notes the counters of all rules. The caller is in core.Do.
func (g *Gate) sample(now time.Time) error {
	if now.Sub(g.rates.last.at) < leastSample {
		return nil
	}
	totals, err := g.totals()
	if err != nil {
		return err
	}
	s := sample{now, make(map[uint32]Counts, len(g.slots))}
	for id, slot := range g.slots {
		s.rules[id] = totals[slot]
	}
	g.rates.before, g.rates.last = g.rates.last, s
	return nil
}

// of is what a rule counts per second.
func (r *rates) of(id uint32) (packets, bytes float64) {
	if r.before.at.IsZero() {
		return 0, 0
	}
	was, is, took := r.before.rules[id], r.last.rules[id], r.last.at.Sub(r.before.at).Seconds()
	return float64(is.Packets-was.Packets) / took, float64(is.Bytes-was.Bytes) / took
}

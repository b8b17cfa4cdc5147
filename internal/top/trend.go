package top

import (
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
)

// maxTrend is how many intervals of the past are kept of a row.
const maxTrend = 40

// gap stands for an interval without packets of the row, or that was not seen.
const gap = -1

// trend is the past of a row.
type trend struct {
	rates []float64 // bits a second, or gap; the newest last
	last  int       // number of the interval it was last seen in
	rtt   time.Duration
}

// rowKey is what makes a row the same from interval to interval.
type rowKey struct {
	iface, netns string
	in, out      string
	src, dst     netip.Prefix
	sport, dport uint16
	vlan, inner  uint16
	vni          uint32
	proto        uint8
	direction    flow.Direction
	tunnel       flow.Tunnel
	family       uint8
	unattributed bool
}

func keyOf(w *api.Row) rowKey {
	return rowKey{
		w.Iface, w.Netns, w.In, w.Out, w.SrcPrefix, w.DstPrefix, w.SrcPort, w.DstPort, w.VLAN, w.InnerVLAN, w.VNI,
		w.Proto, w.Direction, w.Tunnel, w.Family, w.Unattributed,
	}
}

// trends is the past of all rows.
type trends map[rowKey]*trend

// add takes the rows of an interval and forgets rows that have been silent.
func (t trends) add(number int, taken time.Duration, rows []api.Row) {
	for i := range rows {
		w := &rows[i]
		p := t[keyOf(w)]
		if p == nil {
			p = &trend{last: number - 1}
			t[keyOf(w)] = p
		}
		for ; p.last < number-1; p.last++ {
			p.push(gap)
		}
		p.last = number
		p.push(float64(w.Bytes) * 8 / max(taken.Seconds(), 0.001))
		if h := w.RTT.Handshake(); h > 0 {
			p.rtt = h // a handshake comes once, and holds for the conversation
		}
	}
	for key, p := range t {
		if number-p.last > maxTrend {
			delete(t, key)
		}
	}
}

func (p *trend) push(rate float64) {
	p.rates = append(p.rates, rate)
	if len(p.rates) > maxTrend {
		p.rates = p.rates[len(p.rates)-maxTrend:]
	}
}

// Levels of a sparkline, from nothing to the highest rate of the row.
const (
	unicodeLevels = "▁▂▃▄▅▆▇█"
	asciiLevels   = "_.:-=+*#"
)

// spark draws the last rates, the newest at the right; a gap is a blank.
func (p *trend) spark(width int, ascii bool) string {
	levels := []rune(unicodeLevels)
	if ascii {
		levels = []rune(asciiLevels)
	}
	rates := p.rates
	if len(rates) > width {
		rates = rates[len(rates)-width:]
	}
	highest := 0.0
	for _, r := range rates {
		highest = max(highest, r)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(rates)))
	for _, r := range rates {
		if r == gap {
			b.WriteByte(' ')
			continue
		}
		level := 0
		if highest > 0 {
			level = int(math.Round(r / highest * float64(len(levels)-1)))
		}
		b.WriteRune(levels[level])
	}
	return b.String()
}

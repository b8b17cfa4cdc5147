package analyze

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/verdict"
	"github.com/waymark-net/waymark/test/await"
)

// line is hosts one behind the other, whose agents send what they counted.
type line struct {
	*scene
	analyzer *Analyzer
	hosts    []string
	bridge   []bool
	agents   []*pusher
	from     time.Time
	counts   [][]flow.Record
	silent   string // who did not count for ten seconds
}

func newLine(t *testing.T, bridge ...bool) *line {
	t.Helper()
	l := &line{scene: newScene(t), hosts: []string{"alpha", "mu", "kappa", "omega"}, bridge: bridge, from: time.Now().Add(-5 * time.Minute).Truncate(time.Second)}
	l.analyzer, _ = l.start(t)
	for i, host := range l.hosts {
		v := survey(host, "prev", "next")
		switch i { // who has the addresses of flows
		case 0:
			v.sources.Links.Nodes[1].Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
		case len(l.hosts) - 1:
			v.sources.Links.Nodes[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}
		}
		if i+1 < len(l.hosts) {
			v.sees(2, l.hosts[i+1], "prev")
		}
		l.agents = append(l.agents, l.pusher(t, l.certificate(t, host), filepath.Join(t.TempDir(), "queue"), v.note(t).shows))
	}
	l.counts = make([][]flow.Record, len(l.hosts))
	return l
}

// pass has a flow of a hundred packets pass; each link takes a time in the direction of the line, and loses packets.
func (l *line) pass(port uint16, forth bool, late []time.Duration, lost []uint64) {
	n, at, ttl, last := uint64(100), l.from.Add(13*time.Second+time.Duration(port)*time.Millisecond), uint8(64), len(l.hosts)-1
	r := flow.Record{Family: 4, IfIndex: 2, Proto: 17, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.0.1"), SrcPort: port, DstPort: 53}
	if !forth {
		r.Src, r.Dst = r.Dst, r.Src
	}
	for step := range l.hosts {
		i, out, in := step, "next", "prev"
		if !forth {
			i, out, in = last-step, "prev", "next"
		}
		count := func(iface string, d flow.Direction) {
			one := r
			one.Iface, one.Direction, one.TTLMin, one.TTLMax = iface, d, ttl, ttl
			if n == 0 {
				return
			}
			one.Packets, one.Bytes, one.First, one.Last = n, n*100, at, at.Add(4*time.Second)
			if d == flow.Ingress && i == last && n < 100 {
				one.PDM = &flow.PDM{Received: n, Lost: int64(100 - n)}
			}
			l.counts[i] = append(l.counts[i], one)
		}
		if step > 0 {
			count(in, flow.Ingress)
			if !l.bridge[i] {
				ttl--
			}
		}
		if step < last {
			count(out, flow.Egress)
			at = at.Add(time.Millisecond)
			if forth {
				at, n = at.Add(late[i]), n-lost[i]
			}
		}
	}
}

// send has the agents send everything, in the second of four intervals.
func (l *line) send(t *testing.T) {
	t.Helper()
	for i, p := range l.agents {
		p.from = l.from
		for n := range 4 {
			iv := p.store.Begin(p.from)
			if n == 1 {
				for k := range l.counts[i] {
					p.records++
					iv.Add(&l.counts[i][k])
				}
			}
			p.from = p.from.Add(10 * time.Second)
			iv.End(p.from)
			p.delivered(t)
			if n == 0 && p.name == l.silent {
				p.from = p.from.Add(10 * time.Second)
			}
		}
	}
	await.True(t, "all intervals", func() bool { // the last ones have no records by which they are missed
		for _, h := range l.analyzer.section().Hosts {
			if h.Intervals != 4 {
				return false
			}
		}
		return true
	})
	await.True(t, "all topologies", func() bool { return len(l.links(t)) == len(l.hosts)-1 })
}

func (l *line) why(t *testing.T) (a verdict.Answer) {
	t.Helper()
	if err := api.NewClient(filepath.Join(l.dir, "s")).Why(context.Background(), api.WhyRequest{Since: "10m"}, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestWhyBetween: of four hosts, one link loses packets and another one is slow. What the last host saw of the loss follows.
func TestWhyBetween(t *testing.T) {
	l := newLine(t, false, false, false, false)
	for i := range 10 {
		l.pass(uint16(4000+i), true, []time.Duration{0, 0, 0}, []uint64{0, 0, 10})
		l.pass(uint16(5000+i), true, []time.Duration{60 * time.Millisecond, 0, 0}, []uint64{0, 0, 0})
		l.pass(uint16(6000+i), false, []time.Duration{0, 0, 0}, []uint64{0, 0, 0})
	}
	l.send(t)
	a := l.why(t)
	var loss, delay *verdict.Verdict
	for i := range a.Verdicts {
		switch v := &a.Verdicts[i]; v.Kind {
		case verdict.PathLoss:
			loss = v
		case verdict.PathDelay:
			delay = v
		}
	}
	if len(a.Verdicts) != 2 || loss == nil || delay == nil {
		t.Fatalf("%+v", a)
	}
	if loss.Where.Host != "kappa" || loss.Where.ToHost != "omega" || loss.Value != 0.05 || loss.Samples != 2000 || loss.Others > 0 {
		t.Errorf("loss: %+v", loss)
	}
	if len(loss.Consequences) != 1 || !strings.HasPrefix(loss.Consequences[0].Text, "omega: The path from 10.0.0.1") {
		t.Errorf("what follows from loss: %+v", loss.Consequences)
	}
	// Half of the flows are slow: the median of twenty is that of these.
	if w := delay.Where; w.Host+w.ToHost != "alphamu" && w.Host+w.ToHost != "mualpha" || delay.Value < 0.03 || delay.Value > 0.0621 {
		t.Errorf("delay: %+v", delay)
	}
	for _, m := range a.Examined {
		if strings.Contains(m.What, "30 flows pass, the largest of 30") && m.Count == 0 {
			t.Errorf("%+v", m)
		}
	}
}

// TestWhyNothingArrives: the last link loses all of some flows. Their destination counts, and saw none.
func TestWhyNothingArrives(t *testing.T) {
	l := newLine(t, false, false, false, false)
	for i := range 8 {
		lost := uint64(0)
		if i < 2 {
			lost = 100
		}
		l.pass(uint16(4000+i), true, []time.Duration{0, 0, 0}, []uint64{0, 0, lost})
	}
	l.send(t)
	a := l.why(t)
	if len(a.Verdicts) != 1 || a.Verdicts[0].Where.Host != "kappa" || a.Verdicts[0].Where.ToHost != "omega" || a.Verdicts[0].Value != 0.25 {
		t.Errorf("%+v", a)
	}
}

// TestWhySilent: a host whose agent did not count for a while has counted less, and nothing follows from that.
func TestWhySilent(t *testing.T) {
	l := newLine(t, false, false, false, false)
	l.silent = "kappa"
	for i := range 4 {
		l.pass(uint16(4000+i), true, []time.Duration{0, 0, 0}, []uint64{0, 20, 0})
	}
	l.send(t)
	for _, v := range l.why(t).Verdicts {
		if v.Where.ToHost == "kappa" || v.Where.Host == "kappa" {
			t.Errorf("%+v", v)
		}
	}
	var ways hops.Ways
	if err := api.NewClient(filepath.Join(l.dir, "s")).Points(context.Background(), api.WhyRequest{Since: "10m"}, &ways); err != nil || len(ways.Incomplete) != 1 || !strings.Contains(ways.Incomplete[0], "kappa: it did not count for 10s") {
		t.Errorf("%v %q", err, ways.Incomplete)
	}
}

// TestWhyBridges: two hosts bridge one behind the other. The topology says which comes first.
func TestWhyBridges(t *testing.T) {
	l := newLine(t, false, true, true, false)
	for i := range 4 {
		l.pass(uint16(4000+i), true, []time.Duration{0, 0, 0}, []uint64{0, 20, 0})
	}
	l.send(t)
	if a := l.why(t); len(a.Verdicts) == 0 || a.Verdicts[0].Kind != verdict.PathLoss || a.Verdicts[0].Where.Host != "mu" || a.Verdicts[0].Where.ToHost != "kappa" {
		t.Errorf("%+v", a)
	}
}

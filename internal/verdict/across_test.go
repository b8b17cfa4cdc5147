package verdict_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/verdict"
)

// chain is hosts one behind the other, each with a clock of its own, and at most one fault.
type chain struct {
	rand   *rand.Rand
	hosts  []string
	bridge []bool
	clock  []time.Duration
	facts  hops.Facts
	points map[string]*hops.Points
	inside map[string]*hops.Points // of the inner windows
	inner  map[string]hops.Window
	flows  map[string]verdict.Flow
	sent   uint64 // packets that came to the fault
	lost   uint64 // there
	long   bool   // flows go on at the end
}

// defect is what is wrong: at a host, or on the link behind it.
type defect struct {
	at     int
	inside bool
	loss   float64
	delay  time.Duration // of packets to the last host
}

const chainFrom = 1_700_000_000

func newChain(r *rand.Rand) *chain {
	c := &chain{rand: r, points: map[string]*hops.Points{}, inside: map[string]*hops.Points{}, inner: map[string]hops.Window{}, flows: map[string]verdict.Flow{}, long: r.IntN(4) == 0}
	c.facts = hops.Facts{Windows: map[string]hops.Window{}, Clock: 100 * time.Millisecond}
	for i := range 3 + r.IntN(3) {
		name := fmt.Sprintf("h%d", (i*7)%10)
		c.hosts, c.bridge = append(c.hosts, name), append(c.bridge, i > 0 && r.IntN(3) == 0)
		c.clock = append(c.clock, time.Duration(r.Int64N(int64(90*time.Millisecond)))-45*time.Millisecond)
		if i > 0 {
			c.facts.Links = append(c.facts.Links, hops.Link{
				A: hops.End{Node: hops.Node{Host: c.hosts[i-1]}, Iface: "next"}, B: hops.End{Node: hops.Node{Host: name}, Iface: "previous"},
			})
		}
		begin := time.Unix(chainFrom, 0).Add(-time.Duration(r.Int64N(int64(10 * time.Second))))
		end := begin.Add(80 * time.Second)
		if c.long {
			end = time.Unix(chainFrom+60, 0).Add(-time.Duration(r.Int64N(int64(2 * time.Second))))
		}
		c.facts.Windows[name] = hops.Window{From: begin, To: end}
		c.inner[name] = hops.Window{From: time.Unix(chainFrom, 0).Add(time.Second), To: time.Unix(chainFrom+57, 0)}
	}
	return c
}

// send has a flow of n packets pass all hosts, in either direction.
func (c *chain) send(port uint16, forth bool, n int, d *defect) {
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.9.1")
	if !forth {
		src, dst = dst, src
	}
	id := fmt.Sprint(port, forth)
	f := verdict.Flow{Proto: "udp", Src: src, SrcPort: port, Dst: dst, DstPort: 53}
	c.flows[id], c.points[id], c.inside[id] = f, &hops.Points{}, &hops.Points{}
	records := map[[2]int]*flow.Record{} // by host and direction
	inner := map[[2]int]*flow.Record{}
	last := len(c.hosts) - 1
	for k := range n {
		if c.long { // in bursts
			k -= k % 25
		}
		at := time.Unix(chainFrom, 0).Add(3*time.Second + time.Duration(port)*time.Millisecond*17 + time.Duration(k)*50*time.Second/time.Duration(n))
		if c.long {
			at = at.Add(10 * time.Second) // beyond the ends of the windows
		}
		ttl := uint8(64)
		for step := range c.hosts {
			i := step
			if !forth {
				i = last - step
			}
			w := c.facts.Windows[c.hosts[i]]
			seen := func(d flow.Direction) {
				own := at.Add(c.clock[i])
				if own.After(w.To) {
					return
				}
				iface := "previous"
				if forth == (d == flow.Egress) {
					iface = "next"
				}
				count := func(records map[[2]int]*flow.Record) {
					r := records[[2]int{i, int(d)}]
					if r == nil {
						r = &flow.Record{Iface: iface, Direction: d, Proto: 17, Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, DstPort: f.DstPort, TTLMin: ttl, TTLMax: ttl, First: own}
						records[[2]int{i, int(d)}] = r
					}
					r.Packets, r.Last = r.Packets+1, own
				}
				count(records)
				if in := c.inner[c.hosts[i]]; !own.Before(in.From) && own.Before(in.To) {
					count(inner)
				}
			}
			if step > 0 {
				seen(flow.Ingress)
			}
			if step == last {
				break
			}
			if step > 0 {
				if d.at == i && d.inside && !c.survives(d, &at, forth) || !c.background() {
					break
				}
				if !c.bridge[i] {
					ttl--
				}
			}
			seen(flow.Egress)
			behind := i
			if !forth {
				behind = i - 1
			}
			at = at.Add(200 * time.Microsecond)
			if d.at == behind && !d.inside && !c.survives(d, &at, forth) || !c.background() {
				break
			}
		}
	}
	for to, from := range map[*hops.Points]map[[2]int]*flow.Record{c.points[id]: records, c.inside[id]: inner} {
		for at, r := range from {
			if err := to.Add(c.hosts[at[0]], r); err != nil {
				panic(err)
			}
		}
	}
}

// survives has a packet pass the fault.
func (c *chain) survives(d *defect, at *time.Time, forth bool) bool {
	c.sent++
	if c.rand.Float64() < d.loss {
		c.lost++
		return false
	}
	if forth {
		*at = at.Add(d.delay)
	}
	return true
}

// background loses one packet in ten thousand everywhere.
func (c *chain) background() bool { return c.rand.IntN(10_000) != 0 }

func (c *chain) examine(clocks map[string]verdict.Clock) ([]verdict.Verdict, []verdict.Matter) {
	x := verdict.Across{From: time.Unix(chainFrom, 0), To: time.Unix(chainFrom+60, 0), Known: len(c.flows), Clocks: clocks}
	for id, p := range c.points {
		path := p.Find(&c.facts)
		if len(path.Unconfirmed) > 0 {
			panic(path.Unconfirmed)
		}
		one := verdict.Crossing{Flow: c.flows[id], Path: path}
		for i := range path.Parts {
			one.Lost = append(one.Lost, c.facts.Certain(&path.Parts[i], &hops.Inner{Points: c.inside[id], Windows: c.inner}))
		}
		x.Flows = append(x.Flows, one)
	}
	cfg := config.Default()
	t := verdict.ThresholdsOf(&cfg.Why)
	return x.Examine(&t)
}

// names says which part a verdict is about, in the direction of the chain.
func (c *chain) names(d *defect, w *verdict.Where) bool {
	host := c.hosts[d.at]
	if d.inside {
		return w.Host == host && w.ToHost == host
	}
	next := c.hosts[d.at+1]
	return w.Host == host && w.ToHost == next || w.Host == next && w.ToHost == host
}

// TestAcross draws chains of hosts with one fault or none. The verdicts name the fault, and nothing else.
func TestAcross(t *testing.T) {
	found := map[string]int{}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 11))
		c := newChain(r)
		kind := []string{"none", "loss", "loss", "delay", "delay"}[r.IntN(5)]
		d := &defect{at: r.IntN(len(c.hosts) - 1)}
		d.inside = d.at > 0 && r.IntN(2) == 0
		switch kind {
		case "none":
			d.at = -1
		case "loss":
			d.loss = 0.02 + 0.3*r.Float64()
		case "delay":
			d.delay = 25*time.Millisecond + time.Duration(r.Int64N(int64(60*time.Millisecond)))
		}
		back := r.IntN(2) == 0
		for i := range 8 {
			c.send(uint16(i+1), true, 300, d)
			if back {
				c.send(uint16(i+100), false, 300, d)
			}
		}
		clocks, exact := map[string]verdict.Clock{}, time.Duration(1+r.IntN(40))*time.Millisecond
		for i, host := range c.hosts {
			if r.IntN(3) > 0 {
				off := time.Duration(r.Int64N(int64(exact)))
				clocks[host] = verdict.Clock{Least: c.clock[i] - off, Most: c.clock[i] - off + exact}
			}
		}
		verdicts, examined := c.examine(clocks)
		context := fmt.Sprintf("seed %d: %s %+v, back %v, long %v, of %v", seed, kind, d, back, c.long, c.hosts)
		for _, v := range verdicts {
			if kind == "none" || string(v.Kind) != "path_"+kind || !c.names(d, &v.Where) {
				t.Errorf("%s: %s: %s", context, v.Kind, v.Text)
			}
			found[kind]++
		}
		if len(verdicts) > 0 && len(examined) != 2 {
			t.Errorf("%s: examined %+v", context, examined)
		}
		switch {
		case kind == "loss" && !c.long:
			c.checkLoss(t, context, verdicts, back)
		case kind == "delay" && !c.long && (d.inside || back):
			c.checkDelay(t, context, verdicts, d)
		case kind == "delay" && !c.long && len(verdicts) == 0:
			c.checkUndecided(t, context, examined, d, clocks)
		}
	}
	if found["loss"] < 50 || found["delay"] < 50 {
		t.Errorf("found %v", found)
	}
}

// checkLoss: what both directions lost is, together, what was lost.
func (c *chain) checkLoss(t *testing.T, context string, verdicts []verdict.Verdict, back bool) {
	t.Helper()
	want := 1
	if back {
		want = 2 // one for each direction
	}
	var samples uint64
	var lost float64
	for _, v := range verdicts {
		samples += v.Samples
		lost += v.Value * float64(v.Samples)
	}
	// What the background lost there is not counted in c.
	if len(verdicts) != want || samples != c.sent || lost < float64(c.lost)-0.5 || lost > float64(c.lost)+6 {
		t.Errorf("%s: %d verdicts of %.0f in %d packets, want %d of %d", context, len(verdicts), lost, samples, c.lost, c.sent)
	}
}

// checkDelay: the delay is not overstated, and found however clocks differ.
func (c *chain) checkDelay(t *testing.T, context string, verdicts []verdict.Verdict, d *defect) {
	t.Helper()
	most := (d.delay + time.Millisecond).Seconds()
	if len(verdicts) != 1 || verdicts[0].Value > most || verdicts[0].Value < d.delay.Seconds()/2 {
		t.Errorf("%s: %+v", context, verdicts)
	}
}

// checkUndecided: where there is no verdict, clocks are not known well enough, and the answer says so.
func (c *chain) checkUndecided(t *testing.T, context string, examined []verdict.Matter, d *defect, clocks map[string]verdict.Clock) {
	t.Helper()
	a, knownA := clocks[c.hosts[d.at]]
	b, knownB := clocks[c.hosts[d.at+1]]
	if unsure := a.Most - a.Least + b.Most - b.Least; knownA && knownB && d.delay-unsure > 11*time.Millisecond {
		t.Errorf("%s: no verdict, though clocks are known within %v", context, unsure)
	}
	for _, m := range examined {
		if m.Kind == verdict.PathDelay && !strings.Contains(m.Note, "clocks") {
			t.Errorf("%s: %+v", context, examined)
		}
	}
}

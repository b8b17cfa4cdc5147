package gate

import (
	"errors"
	"maps"
	"math/bits"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// leastDropSets is how many sets of flows each CPU has at least.
const leastDropSets = 16

// dropSets are the sets of flows of dropped packets, of one CPU in one epoch.
func (g *Gate) dropSets() uint32 {
	each := max(g.cfg.Dropped/engine.DropWays/max(g.cpus, 1), leastDropSets)
	return 1 << bits.Len32(each-1)
}

// drops are the flows of dropped packets, as the programs count them, and the rules that dropped them.
type drops struct {
	sets  datapath.Mapped[engine.DropSet]
	parts datapath.Mapped[engine.DropPart] // one for each CPU and epoch
	rules map[uint32]*flow.Drop            // those in effect, and those removed since the last drain
}

func (d *drops) open(sets, parts *ebpf.Map) error {
	d.rules = map[uint32]*flow.Drop{0: {Verdict: flow.VerdictBan, Text: "ban"}} // a ban is no rule
	return errors.Join(d.sets.Open(sets), d.parts.Open(parts))
}

func (d *drops) close() {
	d.sets.Close()
	d.parts.Close()
}

// verdicts of rules that drop packets.
var verdicts = map[rules.Action]flow.Verdict{
	rules.ActionDrop: flow.VerdictDrop, rules.ActionLimit: flow.VerdictLimit, rules.ActionSynCookie: flow.VerdictSynCookie,
}

// learn notes the rules that may drop packets from now on.
func (d *drops) learn(list []*rules.Rule) {
	for _, r := range list {
		if v := verdicts[r.Action]; v != flow.VerdictNone {
			d.rules[r.ID] = &flow.Drop{Verdict: v, Rule: r.ID, Text: r.Text}
		}
	}
}

// drain emits and clears what an epoch holds that no program uses.
func (d *drops) drain(g *Gate, epoch uint32, emit func(*flow.Delta)) error {
	wall, spread, err := g.core.Ticks()
	if err != nil {
		return err
	}
	sets := len(d.sets.Values) / len(d.parts.Values)
	var delta flow.Delta
	out := func(s *engine.Drop, unattributed bool) {
		if s.Packets == 0 {
			return
		}
		d.delta(&delta, s, wall, spread)
		delta.Unattributed = unattributed
		*s = engine.Drop{}
		emit(&delta)
	}
	for part := int(epoch); part < len(d.parts.Values); part += 2 {
		p := &d.parts.Values[part]
		if p.Again.Packets > 0 { // of a rule that is gone, even where nothing was counted since the last drain
			d.settle(&p.Again)
			g.take(&p.Again)
		}
		if p.Tick == 0 {
			continue // it has counted nothing
		}
		p.Tick, p.Tokens = 0, 0
		p.Again.State = nothingIsAlike
		for i := range p.Sum {
			out(&p.Sum[i], true)
		}
		for i := part * sets; i < (part+1)*sets; i++ {
			for w := range d.sets.Values[i].Way {
				out(&d.sets.Values[i].Way[w], false)
			}
		}
	}
	if err := g.release(); err != nil {
		return err
	}
	// What a removed rule dropped was in this epoch at the latest.
	maps.DeleteFunc(d.rules, func(id uint32, _ *flow.Drop) bool { return id != 0 && !g.hasRule(id) })
	return nil
}

// settle has a flow count the packets that were like its last one, as gate_again_in_flow() does. They stay where they are until
// a program adds them to the counters of their rule: the agent does not write those that programs use.
func (d *drops) settle(a *engine.Again) {
	if n := a.Packets - a.Settled; n > 0 {
		f := &d.sets.Values[a.Flow/engine.DropWays].Way[a.Flow%engine.DropWays]
		f.Packets, f.Bytes, f.Payload = f.Packets+n, f.Bytes+n*uint64(a.Bytes), f.Payload+n*uint64(a.Payload)
		f.Overhead += n * uint64(a.Overhead)
		if int32(a.Last-f.Last) > 0 {
			f.Last = a.Last
		}
	}
	a.Settled, a.State = a.Packets, nothingIsAlike
}

// nothingIsAlike is a state of programs that there is not, GATE_AGAIN_NOTHING: no packet is like the one that is remembered.
const nothingIsAlike = 1<<64 - 1

func (g *Gate) hasRule(id uint32) bool {
	_, has := g.slots[id]
	return has
}

// delta is what a flow or a sum counted.
func (d *drops) delta(to *flow.Delta, s *engine.Drop, wall func(uint32) int64, spread uint8) {
	*to = flow.Delta{
		Key: datapath.FlowKey(s.Saddr, s.Daddr, s.Sport, s.Dport, s.Iface, s.Meta, s.Proto),
		Counts: flow.Counts{
			Counters: flow.Counters{
				Packets: s.Packets, Bytes: s.Bytes, PayloadBytes: s.Payload, Fragments: uint64(s.Fragments), CEPackets: uint64(s.CePackets),
				Dropped: s.Packets, DroppedBytes: s.Bytes,
			},
			First: wall(s.First), FirstSpread: spread, Last: wall(s.Last), FlowLabel: s.FlowLabel, VNI: s.Vni,
			TCPFlags: uint16(s.TcpFlagsHigh)<<8 | uint16(s.TcpFlags), TOS: s.Tos, TTLMin: s.TtlMin, TTLMax: s.TtlMax,
			Drop: d.rules[s.Rule],
		},
	}
	if s.Proto == unix.IPPROTO_TCP {
		to.Opening = flow.OpeningOf(to.TCPFlags)
	}
	datapath.OnLink(to, s.Meta, s.Overhead, s.GsoPackets, s.GsoBytes)
}

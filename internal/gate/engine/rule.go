package engine

import (
	"time"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// actions are what programs do for a rule. What they do not know is counted.
var actions = map[rules.Action]abiGateAction{
	rules.ActionSample: abiGateActionGATE_SAMPLE, rules.ActionTap: abiGateActionGATE_SAMPLE, rules.ActionNoFlow: abiGateActionGATE_NO_FLOW, rules.ActionOnlyFlow: abiGateActionGATE_ONLY_FLOW,
	rules.ActionPass: abiGateActionGATE_PASS, rules.ActionDrop: abiGateActionGATE_DROP, rules.ActionLimit: abiGateActionGATE_LIMIT,
	rules.ActionSynCookie: abiGateActionGATE_SYNCOOKIE, rules.ActionDetect: abiGateActionGATE_DETECT,
}

// marks are what becomes of the packets that a rule samples.
var marks = map[rules.Action]abiGateMark{
	rules.ActionSample: abiGateMarkGATE_MARK_SAMPLED, rules.ActionTap: abiGateMarkGATE_MARK_TAPPED,
}

// window is the time in which programs count what sources send, as a power of two of ns.
const window = 30

// longest is the time in which a bucket fills at most: it can be added to a time.
const longest = 1 << 61

// Programs are the rules as programs see them, in the order of their bits. slot is where
// a rule counts.
func (t *Table) Programs(slot func(id uint32) uint16) []Rule {
	list := make([]Rule, len(t.Rules))
	watches := uint64(0)
	for i, r := range t.Rules {
		out := Rule{Id: r.ID, Slot: slot(r.ID), Action: uint8(abiGateActionGATE_COUNT)}
		if action, ok := actions[r.Action]; ok && (!r.DryRun || r.Action == rules.ActionDetect) {
			out.Action = uint8(action)
		}
		if mark, samples := marks[r.Action]; samples {
			out.Marks, out.Cost = uint8(mark), uint64(r.Every)
		}
		if l := r.Limit; l != nil {
			out.Rate, out.Full, out.Cost = l.Rate, nanos(l.Burst, l.Rate), nanos(1, l.Rate)
			if l.Bytes {
				out.Bytes = 1
			}
			switch l.Per {
			case rules.PerSource:
				out.Per, out.Bits4, out.Bits6 = uint8(abiGatePerGATE_PER_SOURCE), 32, 128
			case rules.PerSourcePrefix:
				out.Per, out.Bits4, out.Bits6 = uint8(abiGatePerGATE_PER_SOURCE), l.Bits4, l.Bits6
			}
		}
		if r.Action == rules.ActionDetect {
			out.Full, out.Cost = uint64(float64(r.Limit.Rate)*(1<<window)/float64(time.Second)), watches
			watches++
		}
		list[i] = out
	}
	return list
}

// nanos is how long a bucket gathers tokens.
func nanos(tokens, rate uint64) uint64 {
	return uint64(min(float64(tokens)*float64(time.Second)/float64(rate), longest))
}

package flow

import (
	"maps"
	"time"
)

// attachPeriod is how long after an interface's first packet flows are met that
// may be older: whose packet came first then says little.
const attachPeriod = int64(time.Second)

// maxBeginnings bounds what is kept of interfaces, which may come and go.
const maxBeginnings = 1 << 14

// noteBeginnings remembers when counting began on each interface.
func (t *Table) noteBeginnings() {
	if len(t.began) > maxBeginnings {
		clear(t.began)
	}
	var known Iface
	fresh := map[Iface]int64{}
	for i := range t.interval.len {
		d := t.interval.at(i)
		if d.entry < 0 || d.counts.Packets == 0 {
			continue
		}
		iface := t.entries.at(d.entry).key.Iface
		if i > 0 && iface == known {
			continue
		}
		if _, ok := t.began[iface]; ok {
			known = iface
		} else if first, ok := fresh[iface]; !ok || d.counts.First < first {
			fresh[iface] = d.counts.First
		}
	}
	maps.Copy(t.began, fresh)
}

// judge says who began the conversation of a flow that had packets in this
// interval: once, and again where a handshake comes later. Both halves get it.
func (t *Table) judge(e *entry, c *Counts) {
	if e.verdict.by == EvidenceHandshake && !e.recalled || e.judged && c.Opening == 0 || c.Packets == 0 {
		return
	}
	other, back := t.linkedHalf(e)
	v := byMessage(&e.key, c, back)
	if v.by == EvidenceNone && !e.judged {
		if other == nil && e.key.Proto != protoTCP { // of TCP, one half is enough
			other, back = t.mirroredHalf(e)
		}
		if other == nil || !other.judged {
			v = byOrder(&e.key, c, back, c.First-t.began[e.key.Iface] >= attachPeriod)
		}
	}
	e.learn(v)
	e.judged = true
	if other != nil {
		e.learn(other.verdict.opposite())
		other.learn(e.verdict.opposite())
		other.judged = other.judged || back != nil
	}
}

// linkedHalf is the other half of a conversation and what this interval brought of
// it; nil: nothing.
func (t *Table) linkedHalf(e *entry) (*entry, *Counts) {
	if e.reverse < 0 {
		return nil, nil
	}
	return t.half(e.reverse)
}

// mirroredHalf is the other half on a port that mirrors others: both halves have
// one direction.
func (t *Table) mirroredHalf(e *entry) (*entry, *Counts) {
	back := e.key.Reverse()
	back.Direction = e.key.Direction
	if i := t.index.find(t.index.reverse(e.tag, &e.key, &back), &back); i >= 0 && t.entries.at(i) != e {
		return t.half(i)
	}
	return nil, nil
}

func (t *Table) half(i int32) (*entry, *Counts) {
	e := t.entries.at(i)
	if t.isQuiet(e) {
		return e, nil
	}
	if c := &t.interval.at(e.current).counts; c.Packets > 0 {
		return e, c
	}
	return e, nil
}

// learn keeps what is known better; of two handshakes the later, where the earlier
// is that of an entry that left.
func (e *entry) learn(v verdict) {
	if v.by > e.verdict.by || e.recalled && v.by == EvidenceHandshake {
		e.verdict, e.recalled = v, false
	}
}

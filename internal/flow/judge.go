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

// beginnings are when counting began on each interface: its first packets.
type beginnings struct {
	known map[Iface]int64 // until the running interval
	fresh map[Iface]int64 // in it
	last  Iface           // asked for last, mostly the next one, too
	noted bool            // last is known
}

func newBeginnings() beginnings {
	return beginnings{known: map[Iface]int64{}, fresh: map[Iface]int64{}}
}

// note takes a packet of the running interval.
func (b *beginnings) note(iface Iface, at int64) {
	if iface == b.last && b.noted {
		return
	}
	b.last = iface
	if _, b.noted = b.known[iface]; b.noted {
		return
	}
	if first, ok := b.fresh[iface]; !ok || at < first {
		b.fresh[iface] = at
	}
}

// learn makes known what the interval brought.
func (b *beginnings) learn() {
	maps.Copy(b.known, b.fresh)
	clear(b.fresh)
}

// bound forgets all when they are too many: counting begins again.
func (b *beginnings) bound() {
	if len(b.known) > maxBeginnings {
		clear(b.known)
		b.noted = false
	}
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
			v = byOrder(&e.key, c, back, c.First-t.began.known[e.key.Iface] >= attachPeriod)
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
	if c := &t.interval.at(e.current).counts; c.packets() > 0 {
		c.into(&t.other)
		return e, &t.other
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

package flow

import "time"

// pieceLen is how many entries are looked at, and so about how many records
// emitted, before others may use the table: a millisecond.
const pieceLen = 4096

// EndInterval ends the interval: Interval gets a record for every flow that had
// packets in it, Expired the flows that leave. In between, flows of the next
// interval may be merged.
func (t *Table) EndInterval(now time.Time) {
	ended := t.turn()
	t.inPieces(func(i int32, e *entry) {
		if reason := t.expiry(e, ended, now); reason != EndReasonNone {
			t.export(i, reason, ended)
		}
	})
}

// Flush exports everything, when the agent ends.
func (t *Table) Flush() {
	ended := t.turn()
	t.inPieces(func(i int32, _ *entry) { t.evict(i, EndReasonForcedEnd, ended) })
}

// turn begins the next interval and emits what the one that ended brought.
func (t *Table) turn() (ended uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mergeWaiting()
	t.named = named{} // it may have another name by now
	t.began.learn()
	for i := range t.interval.len {
		if d := t.interval.at(i); d.entry >= 0 {
			t.fold(d)
		}
	}
	t.began.bound()
	t.exportLost()
	if t.out.Ended != nil {
		t.out.Ended()
	}
	ended = t.number
	t.interval.reset()
	t.holes = t.holes[:0]
	t.number++
	return ended
}

// inPieces visits every entry in use, and lets go of the lock now and then.
func (t *Table) inPieces(visit func(int32, *entry)) {
	for next, more := int32(0), true; more; {
		t.mu.Lock()
		for end := min(next+pieceLen, t.entries.len); next < end; next++ {
			if e := t.entries.at(next); e.used {
				visit(next, e)
			}
		}
		t.removeLeaving()
		more = next < t.entries.len
		t.mu.Unlock()
		if t.out.Piece != nil {
			t.out.Piece()
		}
	}
}

// isQuiet reports whether the running interval has had no packets of a flow yet.
func (t *Table) isQuiet(e *entry) bool { return e.latest != t.number }

// fold emits what a flow had in the interval and adds it to the flow.
func (t *Table) fold(d *delta) {
	e, c := t.entries.at(d.entry), &t.counts
	d.counts.into(c)
	t.judge(e, c)
	if t.out.Interval != nil {
		r := &t.scratch
		t.record(r, &e.key, c)
		r.Initiator, r.InitiatorBy = e.verdict.who, e.verdict.by
		t.out.Interval(r)
	}
	e.pending.add(c)
}

// expiry decides whether and why a flow leaves after an interval.
func (t *Table) expiry(e *entry, ended uint32, now time.Time) EndReason {
	quiet := e.latest < ended
	switch {
	case e.ended && quiet && t.isReverseQuiet(e, ended): // the last ACKs of both halves have come
		return EndReasonEndOfFlow
	case quiet && isOver(e.pending.last, t.cfg.IdleTimeout, now):
		return EndReasonIdleTimeout
	case e.pending.packets() > 0 && isOver(e.pending.first, t.cfg.ActiveTimeout, now):
		return EndReasonActiveTimeout
	}
	return EndReasonNone
}

// isReverseQuiet: an interval may end between the FINs of both halves, or before the last ACK. A half that left then
// would not be next to the other, and exporters could not join them.
func (t *Table) isReverseQuiet(e *entry, ended uint32) bool {
	return e.reverse < 0 || t.entries.at(e.reverse).latest < ended
}

// isOver reports whether a time has passed since a packet. A packet in the future
// was before the clock was set back: nobody knows how long ago.
func isOver(since int64, timeout time.Duration, now time.Time) bool {
	age := now.UnixNano() - since
	return age < 0 || age >= int64(timeout)
}

// export emits a flow and, right behind it, its reverse. Flows that go on stay
// in the table with their counters at zero.
func (t *Table) export(i int32, reason EndReason, ended uint32) {
	e := t.entries.at(i)
	j, stays := e.reverse, reason == EndReasonActiveTimeout
	t.emit(e, reason)
	t.leave(i, stays)
	if j < 0 {
		return
	}
	back := t.entries.at(j)
	switch {
	case stays && back.pending.packets() > 0:
		t.emit(back, reason)
		t.leave(j, true)
	case !stays && back.latest < ended, reason == EndReasonForcedEnd, reason == EndReasonLackOfResources:
		t.emit(back, reason)
		t.leave(j, false)
	}
}

// leave takes a flow out that was exported. One that goes on, or had packets
// since the interval ended, begins again.
func (t *Table) leave(i int32, stays bool) {
	if e := t.entries.at(i); stays || !t.isQuiet(e) {
		e.pending = kept{last: e.pending.last}
		return
	}
	t.remove(i)
}

func (t *Table) emit(e *entry, reason EndReason) {
	if e.pending.packets() == 0 && !e.pending.reported() {
		return
	}
	r := &t.scratch
	e.pending.into(&t.counts)
	t.record(r, &e.key, &t.counts)
	r.EndReason = reason
	r.Initiator, r.InitiatorBy = e.verdict.who, e.verdict.by
	t.stats.Records++
	t.out.Expired(r)
}

// shed makes room: flows that had no packets for the longest time leave, with
// what the running interval had of them.
func (t *Table) shed() {
	for range min(batch, (t.cfg.MaxFlows+batch-1)/batch) {
		i := t.oldest()
		if i < 0 {
			break
		}
		before := len(t.free)
		t.evict(i, EndReasonLackOfResources, t.number)
		t.stats.Shed += uint64(len(t.free) - before)
	}
	t.removeLeaving()
}

// evict exports both halves of a conversation with all that is known of them.
func (t *Table) evict(i int32, reason EndReason, ended uint32) {
	t.close(i)
	if j := t.entries.at(i).reverse; j >= 0 {
		t.close(j)
	}
	t.export(i, reason, ended)
}

// close ends the interval for one flow.
func (t *Table) close(i int32) {
	e := t.entries.at(i)
	if t.isQuiet(e) {
		return
	}
	d := t.interval.at(e.current)
	t.fold(d)
	d.entry = -1
	d.counts.forget()
	t.holes = append(t.holes, e.current)
	e.latest = 0
}

// candidates is how many flows are compared to find an old one. To keep flows in
// the order of their last packets would cost something for each packet.
const candidates = 8

// oldest is the flow of the next few whose last packet is the longest ago; −1:
// the table is empty.
func (t *Table) oldest() int32 {
	found, last := int32(-1), int64(0)
	for seen, looked := 0, int32(0); seen < candidates && looked < t.entries.len; looked++ {
		i := t.hand
		if t.hand++; t.hand >= t.entries.len {
			t.hand = 0
		}
		e := t.entries.at(i)
		if !e.used {
			continue
		}
		seen++
		at := e.pending.last
		if !t.isQuiet(e) {
			at = t.interval.at(e.current).counts.last
		}
		if found < 0 || at < last {
			found, last = i, at
		}
	}
	return found
}

// exportLost emits the sums of packets that the probe could not attribute.
func (t *Table) exportLost() {
	var r Record
	for k, counts := range t.lost {
		t.recordLost(&r, &k.Key, counts)
		if t.out.Interval != nil {
			t.out.Interval(&r)
		}
		r.EndReason = EndReasonLackOfResources
		t.stats.Records++
		t.out.Expired(&r)
		delete(t.lost, k)
	}
}

package disk

// trips adds the round trips of handshakes: what was measured counts, wherever its packets were seen before.
func (c *counts) trips(b *block, at, ids []int32) error {
	responder, err := b.whole(columnNamed("rtt.responder_ns"))
	if err != nil {
		return err
	}
	initiator, err := b.whole(columnNamed("rtt.initiator_ns"))
	if err != nil || responder.none() && initiator.none() {
		return err
	}
	for i, row := range at {
		if ids[i] < 0 {
			continue
		}
		r, s := responder.orZero(row), initiator.orZero(row)
		if r|s == 0 {
			continue
		}
		t := &c.tripsOf[ids[i]]
		t.Seen++
		if r > 0 {
			t.Responder, t.Responders = t.Responder+r, t.Responders+1
		}
		if s > 0 {
			t.Initiator, t.Initiators = t.Initiator+s, t.Initiators+1
		}
	}
	return nil
}

// none reports whether no row has a value.
func (v *vector) none() bool { return v == nil || v.same && v.values() == 0 }

// orZero is the number of a row; 0: it is missing.
func (v *vector) orZero(row int32) (n uint64) {
	if v != nil {
		n, _, _ = v.cell(int(row))
	}
	return n
}

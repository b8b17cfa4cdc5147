package flow

// batch is how many deltas are merged, and entries removed, together. Each needs
// a line of memory that is rarely in the processor's cache; asked for one after
// the other, without anything between, they arrive together.
const batch = 8

// waiting are deltas that are not merged yet.
type waiting struct {
	n       int
	tags    [batch]uint32
	deltas  [batch]Delta
	touched uint32 // has the compiler keep the loads
}

// add reports whether the batch is full.
func (w *waiting) add(d *Delta, tag uint32) (full bool) {
	w.tags[w.n], w.deltas[w.n] = tag, *d
	w.n++
	return w.n == batch
}

// leaving are places that the index has and should not.
type leaving struct {
	n       int
	places  [batch]place
	touched uint32
}

func (l *leaving) add(tag uint32, entry int32) (full bool) {
	l.places[l.n] = place{tag, entry}
	l.n++
	return l.n == batch
}

package capture

// fifo is a map of bounded size: a new key takes the place of the oldest one.
// Memory is taken as it fills.
type fifo[K comparable, V any] struct {
	values map[K]V
	order  []K // by age from next on, once full
	next   int
	max    int
}

func newFIFO[K comparable, V any](max int) fifo[K, V] {
	return fifo[K, V]{values: map[K]V{}, max: max}
}

func (f *fifo[K, V]) get(k K) (V, bool) {
	v, ok := f.values[k]
	return v, ok
}

// put sets the value of a key and returns what had to leave for it.
func (f *fifo[K, V]) put(k K, v V) (oldest K, left V, evicted bool) {
	if _, ok := f.values[k]; ok {
		f.values[k] = v
		return oldest, left, false
	}
	f.values[k] = v
	if len(f.order) < f.max {
		f.order = append(f.order, k)
		return oldest, left, false
	}
	oldest = f.order[f.next]
	left, evicted = f.values[oldest]
	delete(f.values, oldest)
	f.order[f.next] = k
	f.next = (f.next + 1) % f.max
	return oldest, left, evicted
}

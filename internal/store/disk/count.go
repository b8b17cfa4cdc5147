package disk

import (
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// counts adds up counters by columns: groups are distinguished by keys of some words, and no record
// is made.
type counts struct {
	run      *run
	counters []*flow.Field
	keys     []keyColumn
	ids      table // keys, and the step of time as the last word, where there are some
	meant    table // keys without the time, of which isMeant says whether the plan means them
	isMeant  []bool
	texts    []string // a text is a word of a key by its number
	textIDs  map[string]uint64
	sums     []uint64 // of each group: records, the counters, and those of the way back where the plan folds
	stride   int
	beyond   bool               // groups were beyond the budget: they are in the totals only
	refusing bool               // some field may refuse what a key has
	tripsOf  []query.RoundTrips // of each group; nil: they are not asked for
	record   flow.Record
	folded   *folded
}

// keyColumn is a column that distinguishes groups, with its place in a key.
type keyColumn struct {
	*column
	word         int
	bits4, bits6 int   // of an address
	near         *near // nil: any value may be of a group that is meant
}

// groupBeyond is the number of a group that is beyond the budget.
const groupBeyond = -1

func newCounts(r *run) *counts {
	c := &counts{run: r, counters: r.plan.Counters(), textIDs: map[string]uint64{}}
	if c.stride = 1 + len(c.counters); r.plan.By.Folds() {
		c.stride += len(c.counters)
	}
	words := 1 // which values there are
	for _, name := range r.grouping.Columns() {
		k := keyColumn{column: columnNamed(name), word: words}
		k.bits4, k.bits6, _ = r.grouping.Cut(name)
		if words++; k.address() {
			words++
		}
		if list := r.plan.Prefixes(name); list != nil {
			k.near = newNear(list)
		}
		c.refusing = c.refusing || k.field.PutUint == nil && k.field.PutAddr == nil && k.field.PutStr == nil
		c.keys = append(c.keys, k)
	}
	c.meant.width, c.ids.width = words, words
	if r.plan.Step > 0 {
		c.ids.width++
	}
	if c.counters != nil && r.plan.RoundTrips() {
		c.tripsOf = []query.RoundTrips{}
	}
	return c
}

// textID is the word for a text.
func (c *counts) textID(text []byte) uint64 {
	id, ok := c.textIDs[string(text)]
	if !ok {
		id = uint64(len(c.texts))
		c.textIDs[string(text)] = id
		c.texts = append(c.texts, string(text))
	}
	return id
}

// Counts implements query.Counter: columns are read alone where it need not be found out again
// where packets were seen first.
func (e *engine) Counts(p *query.Plan) bool {
	return len(e.segments) > 0 && !query.NewGrouping(p).Joins(p)
}

// Settled implements query.Counter: the intervals of the newest files, as far as nothing is missing between them. Those of
// files that were aged are not what they were.
func (e *engine) Settled() (first, last uint64) {
	for _, seg := range slices.Backward(e.segments) {
		if seg.aged || seg.damage() != "" || seg.last-seg.first+1 != uint64(len(seg.heads)) || last > 0 && seg.last+1 != first {
			break
		}
		if first = seg.first; last == 0 {
			last = seg.last
		}
	}
	return first, last
}

// block adds the rows of a block.
func (c *counts) block(b *block) error {
	at, err := c.run.at(b, false)
	if err != nil || len(at) == 0 {
		return err
	}
	at, ids, err := c.place(b, at)
	if err != nil || len(at) == 0 {
		return err
	}
	m, err := c.run.againOf(b, at)
	if err != nil {
		return err
	}
	vectors := make([]*vector, len(c.counters))
	for i, f := range c.counters {
		if vectors[i], err = b.counter(f); err != nil {
			return err
		}
	}
	switch {
	case c.folded != nil:
		c.addTurned(c.folded, vectors, m, at, ids)
	case m.any():
		c.addRepeated(vectors, m, at, ids)
	default:
		c.add(vectors, at, ids)
	}
	if c.tripsOf != nil {
		if err := c.trips(b, at, ids); err != nil {
			return err
		}
	}
	return c.run.total(b, at, m)
}

// add adds rows to their groups.
func (c *counts) add(vectors []*vector, at, ids []int32) {
	plain, others := plainOf(vectors)
	if len(plain) == 1 && len(others) == 0 {
		c.addOne(plain[0], at, ids)
		return
	}
	for i, row := range at {
		if ids[i] < 0 {
			continue
		}
		to := c.sums[int(ids[i])*c.stride:][:c.stride]
		to[0]++
		for _, p := range plain {
			to[p.place] += p.numbers[row]
		}
		for _, n := range others {
			to[1+n] += vectors[n].at(int(row))
		}
	}
}

// addOne is add of one counter, as most plans have.
func (c *counts) addOne(p plain, at, ids []int32) {
	for i, id := range ids {
		if id >= 0 {
			to := c.sums[int(id)*c.stride:][:p.place+1]
			to[0]++
			to[p.place] += p.numbers[at[i]]
		}
	}
}

// plain is a vector with a number for each row, and where that is added.
type plain struct {
	place   int
	numbers []uint64
}

// plainOf takes apart vectors that are read without a dictionary, and others that are not 0.
func plainOf(vectors []*vector) (list []plain, others []int) {
	for i, v := range vectors {
		switch {
		case v.same && v.numbers[0] == 0:
		case v.same || v.codes != nil:
			others = append(others, i)
		default:
			list = append(list, plain{1 + i, v.numbers})
		}
	}
	return list, others
}

// addRepeated is add where some packets were seen before.
func (c *counts) addRepeated(vectors []*vector, m *again, at, ids []int32) {
	for i, row := range at {
		if ids[i] < 0 {
			continue
		}
		to := c.sums[int(ids[i])*c.stride:][:c.stride]
		if !m.once || !m.all(int(row)) {
			to[0]++
		}
		for n, v := range vectors {
			to[1+n] += m.counting(v.at(int(row)), int(row))
		}
	}
}

// place finds the group of each row that is meant.
func (c *counts) place(b *block, at []int32) (rows, ids []int32, err error) {
	if at, err = c.nearby(b, at); err != nil || len(at) == 0 {
		return nil, nil, err
	}
	l, err := c.groupsOf(b, at)
	if err != nil {
		return nil, nil, err
	}
	if err := c.choose(l); err != nil {
		return nil, nil, b.damaged(err)
	}
	if c.run.plan.Step > 0 {
		l.steps()
	}
	known, err := l.find(&c.ids, func(_ int, key []uint64, d query.Digest) (int32, error) { return c.newGroup(key, d) })
	if err != nil {
		return nil, nil, b.damaged(err)
	}
	for i, g := range l.groups {
		l.groups[i] = known[g]
	}
	return l.at, l.groups, nil
}

// choose leaves of the rows of a block those of groups that are meant.
func (c *counts) choose(l *local) error {
	if !c.run.plan.Chosen() {
		return nil
	}
	meant := l.block.memory.marks(len(l.firsts))
	known, err := l.find(&c.meant, func(g int, key []uint64, d query.Digest) (int32, error) {
		r, err := c.recordOf(key)
		if err != nil {
			return 0, err
		}
		is := c.run.grouping.Means(r)
		if meant[g] = mark(is); c.meant.Len() >= c.run.plan.Budget.Rows { // it is found out again
			return groupBeyond, nil
		}
		c.isMeant = append(c.isMeant, is)
		return c.meant.add(key, d), nil
	})
	if err != nil {
		return err
	}
	for g, n := range known {
		if n >= 0 {
			meant[g] = mark(c.isMeant[n])
		}
	}
	l.keep(meant)
	return nil
}

// chosen are the rows of groups that are meant.
func (c *counts) chosen(b *block, at []int32) ([]int32, error) {
	at, err := c.nearby(b, at)
	if err != nil || len(at) == 0 {
		return nil, err
	}
	l, err := c.groupsOf(b, at)
	if err == nil {
		err = c.choose(l)
	}
	if err != nil {
		return nil, err
	}
	return l.at, nil
}

// newGroup adds the group of a key.
func (c *counts) newGroup(key []uint64, d query.Digest) (int32, error) {
	if c.ids.Len() >= c.run.plan.Budget.Rows {
		c.run.full = c.run.plan.Full()
		c.beyond = true
		return groupBeyond, nil
	}
	if c.refusing {
		if _, err := c.recordOf(key); err != nil {
			return 0, err
		}
	}
	c.sums = append(c.sums, make([]uint64, c.stride)...)
	if c.tripsOf != nil {
		c.tripsOf = append(c.tripsOf, query.RoundTrips{})
	}
	return c.ids.add(key, d), nil
}

// bucket is the step of time of a group; zero: the plan has none.
func (c *counts) bucket(id int32) (at time.Time) {
	if c.run.plan.Step > 0 {
		at = time.Unix(0, int64(c.ids.key(id)[c.ids.width-1]))
	}
	return at
}

// recordOf makes a record of a key; it is valid until the next call.
func (c *counts) recordOf(key []uint64) (*flow.Record, error) {
	r := &c.record
	*r = flow.Record{}
	var address [addressBytes]byte
	for i := range c.keys {
		k := &c.keys[i]
		if key[0]&(1<<i) == 0 {
			continue
		}
		n := key[k.word]
		var text []byte
		switch {
		case k.address():
			binary.BigEndian.PutUint64(address[:], n)
			binary.BigEndian.PutUint64(address[8:], key[k.word+1])
			text = address[:]
		case k.bytes != nil:
			text = []byte(c.texts[n])
		}
		if err := k.put(r, n, text); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// answer are the groups of the columns, and those of records that were read whole.
func (c *counts) answer(whole query.Groups) query.Groups {
	if c.beyond && whole.Partial == "" {
		whole.Partial = query.TooManyGroups(c.run.plan)
	}
	whole.Sums = &c.run.sums
	switch {
	case c.ids.Len() == 0:
	case whole.Count == 0:
		whole.Rows, whole.Count = c.rows(c.ordered), c.ids.Len()
		first, left := c.first()
		whole.First, whole.Left = c.rows(func() []placed { return c.placed(first) }), left
	default:
		whole.Rows, whole.Count = query.Merged([]query.Groups{{Rows: c.rows(c.ordered)}, {Rows: whole.Rows}}, false), 0
	}
	return whole
}

// placed is a group in the order of digests.
type placed struct {
	digest query.Digest
	id     int32
}

// placed digests groups, for a merge with those of other engines.
func (c *counts) placed(ids []int32) []placed {
	list := make([]placed, 0, len(ids))
	for _, id := range ids {
		if r, err := c.recordOf(c.ids.key(id)); err == nil { // else newGroup refused it
			digest, _ := c.run.grouping.Digest(r, &query.Seen{}, c.bucket(id))
			list = append(list, placed{digest, id})
		}
	}
	return list
}

// ordered are all groups in the order of their digests.
func (c *counts) ordered() []placed {
	all := make([]int32, c.ids.Len())
	for i := range all {
		all[i] = int32(i)
	}
	list := c.placed(all)
	slices.SortFunc(list, func(a, b placed) int { return a.digest.Compare(b.digest) })
	return list
}

// first are the groups that may be among the first rows of the plan, in no order; left is how
// many others there are.
func (c *counts) first() (first []int32, left int) {
	p := c.run.plan
	column := slices.IndexFunc(c.counters, func(f *flow.Field) bool { return f == p.Sorted() })
	least := uint64(0)
	if p.Limit > 0 && p.Limit < c.ids.Len() && column >= 0 && !p.Reverse {
		least = c.largest(column, p.Limit)
	}
	for i := range c.ids.Len() {
		sums := c.sums[i*c.stride:][:c.stride]
		switch {
		case least == 0 || sums[1+column] >= least:
			first = append(first, int32(i))
		case sums[0] > 0:
			left++
		}
	}
	return first, left
}

// largest is the n-th largest sum of a counter.
func (c *counts) largest(column, n int) uint64 {
	heap := make([]uint64, n) // the least one first
	for i := range c.ids.Len() {
		sum := c.sums[i*c.stride+1+column]
		if sum <= heap[0] {
			continue
		}
		at := 0
		for child := 1; child < n; child = 2*at + 1 {
			if child+1 < n && heap[child+1] < heap[child] {
				child++
			}
			if heap[child] >= sum {
				break
			}
			heap[at], at = heap[child], child
		}
		heap[at] = sum
	}
	return heap[0]
}

// rows are the rows of some groups.
func (c *counts) rows(groups func() []placed) iter.Seq[*query.Row] {
	return func(yield func(*query.Row) bool) {
		var w query.Row
		for _, g := range groups() {
			r, err := c.recordOf(c.ids.key(g.id))
			if err != nil {
				continue
			}
			c.run.grouping.Begin(&w, r, &query.Seen{}, c.bucket(g.id))
			sums := c.sums[int(g.id)*c.stride:][:c.stride]
			w.Digest, w.Records = g.digest, sums[0]
			for i, f := range c.counters {
				*f.Counter(&w.Counters) = sums[1+i]
				if c.stride > 1+len(c.counters) {
					*f.Counter(&w.Back) = sums[1+len(c.counters)+i]
				}
			}
			if c.tripsOf != nil {
				w.Measured(&c.tripsOf[g.id])
			}
			if !yield(&w) {
				return
			}
		}
	}
}

package clickhouse

import (
	"context"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// pieceRows is how many records are grouped at once.
const pieceRows = 1 << 14

// stored are the fields that make a record.
var stored = slices.DeleteFunc(pointers(), func(f *flow.Field) bool { return f.Derived || f.Set == nil || f.Name == "host" || f.Name == "sampling" })

func pointers() (list []*flow.Field) {
	for i := range flow.Fields {
		list = append(list, &flow.Fields[i])
	}
	return list
}

// records reads the records that match, and groups them as the memory does, an interval with the one before it. Of the first of heads, that
// may be all that is needed.
func (e *engine) records(ctx context.Context, p *query.Plan, g *query.Grouping, heads []store.Head, groups *query.Accumulator) error {
	q := e.statement()
	list := []string{"interval", "repeated", "toUInt64(ifindex)"}
	for _, f := range stored {
		list = append(list, selected(f, flow.Column(f.Name)))
	}
	q.text = "SELECT " + strings.Join(list, ", ") + " FROM " + e.Tables.Records() + " WHERE " + q.where(e.Host, p, heads) + " ORDER BY interval, row"
	b := builder{plan: p, grouping: g, groups: groups, heads: heads}
	var bad error
	err := q.rows(ctx, func(r *reader) {
		interval, repeated := r.word(), r.word()
		record := flow.Record{IfIndex: uint32(r.word())}
		for _, f := range stored {
			if err := r.value(f, &record); err != nil && bad == nil {
				bad = err
			}
		}
		if r.err == nil {
			b.add(interval, &record, repeated)
		}
	})
	if err == nil {
		err = bad
	}
	b.end(^uint64(0))
	b.flush()
	return err
}

// builder makes intervals of records that come in their order.
type builder struct {
	plan     *query.Plan
	grouping *query.Grouping
	groups   *query.Accumulator
	heads    []store.Head   // that did not end yet
	current  *store.Builder // of the first one; nil: it has no record yet
	before   *store.Ended   // the interval in front of the list; nil: it is not there
	last     uint64         // number of the last one
	list     []store.Ended
	rows     int
}

func (b *builder) add(interval uint64, r *flow.Record, repeated uint64) {
	b.end(interval)
	if len(b.heads) == 0 || b.heads[0].Sequence != interval { // not meant
		return
	}
	if b.current == nil {
		b.current = store.NewBuilder(b.heads[0])
	}
	b.current.Add(r, repeated)
}

// end ends all intervals in front of one.
func (b *builder) end(before uint64) {
	for len(b.heads) > 0 && b.heads[0].Sequence < before {
		h := b.heads[0]
		b.heads = b.heads[1:]
		if b.current == nil { // no record of it matches
			continue
		}
		ended := b.current.End()
		b.current = nil
		if h.Sequence != b.last+1 {
			b.flush()
			b.before = nil
		}
		b.last = h.Sequence
		if !b.plan.Meant(h.Sequence, h.From, h.To) {
			b.flush()
			b.before = &ended
			continue
		}
		b.list = append(b.list, ended)
		if b.rows += ended.Len(); b.rows >= pieceRows {
			b.flush()
		}
	}
}

// flush groups the list; its last interval is in front of the next one.
func (b *builder) flush() {
	if len(b.list) == 0 {
		return
	}
	for w := range store.Group(b.plan, b.before, b.list).Rows {
		b.groups.Row(w)
	}
	last := b.list[len(b.list)-1]
	b.before, b.list, b.rows = &last, nil, 0
}

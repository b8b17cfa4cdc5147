package clickhouse

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// where is the condition of the records of intervals that match the filter of a plan: partitions and the sort key first.
func (q *statement) where(host string, p *query.Plan, heads []store.Head) string {
	from, to := heads[0].From, heads[0].From
	for _, h := range heads { // clocks step
		if h.From.Before(from) {
			from = h.From
		}
		if h.From.After(to) {
			to = h.From
		}
	}
	list := []string{
		"time BETWEEN " + q.time(from) + " AND " + q.time(to), "host = " + q.param(host),
		fmt.Sprintf("interval BETWEEN %s AND %s", q.param(heads[0].Sequence), q.param(heads[len(heads)-1].Sequence)),
	}
	if gaps := uint64(len(heads)) != heads[len(heads)-1].Sequence-heads[0].Sequence+1; gaps {
		list = append(list, "interval IN "+q.numbers(heads))
	}
	if !p.Records().Empty() {
		dialect := filter.ClickHouse
		dialect.Parameter = func(_ int, v any) string { return q.param(v) }
		list = append(list, p.Records().SQL(dialect).Where)
	}
	return strings.Join(list, " AND ")
}

// numbers are those of intervals, as an array.
func (q *statement) numbers(heads []store.Head) string {
	b := []byte("[")
	for i := range heads {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Append(b, heads[i].Sequence)
	}
	return q.typed(string(b)+"]", "Array(UInt64)")
}

// folds are the columns of ends as the plan turns them: query.By.Turn in SQL.
func folds(by *query.By, table string) string {
	if !by.Folds() {
		return table
	}
	turned := "0"
	switch by.Fold {
	case query.FoldPair:
		turned = "f_less"
	case query.FoldPeer:
		turned = "direction = 'egress'"
	case query.FoldConversation:
		turned = "multiIf(f_reply, 1, f_icmp, 0, initiator != 'unknown', initiator = 'dst', f_s != f_d, f_s < f_d, f_less)"
	}
	swapped, reply := "f_turned", "0"
	switch by.Fold {
	case query.FoldPeer:
		swapped, reply = "f_turned AND NOT f_icmp", "f_reply"
	case query.FoldConversation:
		swapped, reply = "f_turned AND NOT f_reply", "f_reply"
	}
	client := "0"
	if by.Services {
		client = "multiIf(unattributed OR f_icmp, 0, f_initiator != 0, f_initiator, f_sport0 > f_dport0, 1, f_sport0 < f_dport0, 2, 0)"
	}
	levels := []string{
		"ifNull(sport, 0) AS f_s, ifNull(dport, 0) AS f_d0, (proto = 1 AND family = 4) OR (proto = 58 AND family = 6) AS f_icmp, " +
			"(proto = 1 AND intDiv(f_d0, 256) = 0) OR (proto = 58 AND intDiv(f_d0, 256) = 129) AS f_reply, " +
			"ifNull(dst < src, 0) AS f_less",
		"f_d0 AS f_d, NOT unattributed AND (" + turned + ") AS f_turned, NOT unattributed AND (" + reply + ") AS f_request",
		"if(f_request, if(proto = 1, 2048, 32768), f_d) AS f_d1, " + swapped + " AS f_swapped, " +
			"if(f_turned, transform(toUInt8(initiator), [1, 2], [2, 1], 0), toUInt8(initiator)) AS f_initiator",
		"if(f_swapped, f_d1, f_s) AS f_sport0, if(f_swapped, f_s, f_d1) AS f_dport0, if(f_turned, dst, src) AS f_src, if(f_turned, src, dst) AS f_dst",
		client + " AS f_client, if(f_client = 1, 0, f_sport0) AS f_sport, if(f_client = 2, 0, f_dport0) AS f_dport",
	}
	for _, columns := range levels {
		table = "(SELECT *, " + columns + " FROM " + table + ")"
	}
	return table
}

// folded are the names of columns that folds makes.
var folded = []string{"src", "dst", "sport", "dport", "initiator"}

// sums has the server group and add up.
func (e *engine) sums(ctx context.Context, p *query.Plan, g *query.Grouping, heads []store.Head, groups *query.Accumulator) error {
	q := e.statement()
	s := newSelection(p, g)
	from := "(SELECT * FROM " + e.Tables.Records() + " WHERE " + q.where(e.Host, p, heads) + q.prefixes(p) + ")"
	q.text = "SELECT " + strings.Join(s.columns(q, p.Step), ", ") + " FROM " + folds(&p.By, from) + " GROUP BY " + strings.Join(s.groups, ", ")
	var bad error
	err := q.rows(ctx, func(r *reader) {
		var part query.Partial
		step, err := s.read(r, &part)
		if r.err != nil {
			return
		}
		if err != nil {
			bad = err
		}
		groups.Partial(&part, step)
	})
	if err == nil {
		err = bad
	}
	return err
}

// prefixes leaves out records of which the plan, which has chosen its rows, says that they are of none.
func (q *statement) prefixes(p *query.Plan) (text string) {
	for _, name := range []string{"src", "dst"} {
		list := p.Prefixes(name)
		if len(list) == 0 || !p.By.Columnar() {
			continue
		}
		var tests []string
		for _, prefix := range list {
			family, first, last := filter.Edges(prefix)
			tests = append(tests, fmt.Sprintf("(family = %s AND %s BETWEEN %s AND %s)", q.param(family), name, q.param(first), q.param(last)))
		}
		text += " AND (" + strings.Join(tests, " OR ") + ")"
	}
	return text
}

// selection is what a plan needs of the server: groups, then sums.
type selection struct {
	plan     *query.Plan
	grouping *query.Grouping
	keys     []*flow.Field
	sums     []*flow.Field // one value each: sums, limits and histograms
	counters []*flow.Field // four values each, see columns
	trips    bool
	groups   []string
}

// newSelection chooses the fields.
func newSelection(p *query.Plan, g *query.Grouping) *selection {
	s := &selection{plan: p, grouping: g}
	names := p.Fields()
	wanted := func(f *flow.Field) bool {
		return p.Counters() == nil && (names == nil || slices.Contains(names, f.Name))
	}
	for _, f := range stored {
		object, _ := f.Inside()
		switch agreed := f.Merge == flow.MergeAgree || f.Merge == flow.MergeKey && object != ""; {
		case slices.Contains(g.Columns(), f.Name), agreed && wanted(f):
			s.keys = append(s.keys, f)
		case f.Merge == flow.MergeKey, f.Merge == flow.MergeFirst, agreed:
		case f.Counter != nil:
			if names == nil || p.Counters() == nil && slices.Contains(names, f.Name) || s.counted(f) {
				s.counters = append(s.counters, f)
			}
		case f.Merge == flow.MergeMean:
			s.trips = s.trips || wanted(f)
		case wanted(f):
			s.sums = append(s.sums, f)
		}
	}
	return s
}

// counted reports whether a counter is of the totals, of the order, or of a pass.
func (s *selection) counted(f *flow.Field) bool {
	same := func(o *flow.Field) bool { return o.Name == f.Name }
	return f.Name == "packets" || slices.ContainsFunc(s.plan.Summed(), same) || slices.ContainsFunc(s.plan.Counters(), same)
}

// secondsBefore are those from the year 1 to 1970.
const secondsBefore = 62135596800

// columns are what the statement selects, in the order in which read reads it.
func (s *selection) columns(q *statement, step time.Duration) (list []string) {
	begin := "toInt64(0)"
	if step > 0 { // steps are counted from the year 1, as by time.Truncate
		high, low := bits.Mul64(secondsBefore, uint64(time.Second))
		year := int64(bits.Rem64(high, low, uint64(step)))
		const ns = "toUnixTimestamp64Nano(time)"
		begin = fmt.Sprintf("%s - (%s + %s) %% %s", ns, ns, q.param(year), q.param(int64(step)))
	}
	group := func(expression, name string) string {
		s.groups = append(s.groups, name)
		return expression + " AS " + name
	}
	list = append(list, group(begin, "g_step"))
	for i, f := range s.keys {
		list = append(list, group(selected(f, s.key(q, f)), fmt.Sprint("g", i)))
	}
	rep := "least(repeated, packets)"
	counted := "1"
	if s.grouping.Idle() {
		rep = "toUInt64(0)"
	} else if s.grouping.Once() {
		counted = "(repeated = 0 OR packets > repeated)"
	}
	turned := "0"
	if s.plan.By.Folds() {
		turned = "f_turned"
	}
	list = append(list, "countIf("+counted+")")
	for _, f := range s.counters {
		c := flow.Column(f.Name)
		again := fmt.Sprintf("toUInt64(multiIf(%s = 0, 0, %s >= packets, %s, intDiv(toUInt128(%s) * %s, greatest(packets, 1))))", rep, rep, c, c, rep)
		all := c
		if s.grouping.Once() {
			all = "(" + c + " - " + again + ")"
		}
		list = append(list, "sum(toUInt64("+all+"))", "sum("+again+")", "sumIf(toUInt64("+all+"), "+turned+")")
	}
	if s.trips {
		list = append(list, "countIf(rtt_responder_ns > 0 OR rtt_initiator_ns > 0)", "ifNull(sum(rtt_responder_ns), 0)", "count(rtt_responder_ns)",
			"ifNull(sum(rtt_initiator_ns), 0)", "count(rtt_initiator_ns)")
	}
	for _, f := range s.sums {
		list = append(list, selected(f, s.sum(f, counted)))
	}
	return list
}

// key is the expression of a key: turned, and cut.
func (s *selection) key(q *statement, f *flow.Field) string {
	column := flow.Column(f.Name)
	if s.plan.By.Folds() && slices.Contains(folded, f.Name) {
		column = "f_" + column
	}
	if f.Kind != flow.Address {
		return column
	}
	bits4, bits6, whole := s.grouping.Cut(f.Name)
	if whole {
		return column
	}
	return fmt.Sprintf("if(unattributed, NULL, tupleElement(IPv6CIDRToRange(ifNull(%s, toIPv6('::')), if(family = 4, %s, %s)), 1))",
		column, q.typed(fmt.Sprint(96+bits4), "UInt8"), q.typed(fmt.Sprint(bits6), "UInt8"))
}

// sum is the expression of a field of which rows have one value.
func (s *selection) sum(f *flow.Field, counted string) string {
	column := flow.Column(f.Name)
	object, name := f.Inside()
	if object == "" {
		switch f.Merge {
		case flow.MergeMin:
			return "minIf(" + column + ", " + counted + ")"
		case flow.MergeMax:
			return "maxIf(" + column + ", " + counted + ")"
		}
		return "groupBitOrIf(" + column + ", " + counted + ")"
	}
	switch {
	case f.Kind == flow.Pairs:
		places := "arrayEnumerate(" + column + ")"
		return fmt.Sprintf("arrayFlatten(arrayMap((k, n) -> [k, n], tupleElement(sumMap(arrayFilter((x, i) -> i %% 2 = 1, %s, %s), arrayFilter((x, i) -> i %% 2 = 0, %s, %s)) AS m_%s, 1), tupleElement(m_%s, 2)))",
			column, places, column, places, column, column)
	case strings.HasSuffix(name, "min_ns"):
		return "min(" + column + ")"
	case strings.HasSuffix(name, "max_ns"), f.Kind == flow.Flag:
		return "max(" + column + ")"
	}
	return "sum(" + column + ")"
}

// read reads a row.
func (s *selection) read(r *reader, part *query.Partial) (step time.Time, err error) {
	if at := int64(r.word()); s.plan.Step > 0 {
		step = flow.FromNanos(at)
	}
	note := func(e error) {
		if err == nil {
			err = e
		}
	}
	for _, f := range s.keys {
		note(r.value(f, &part.Record))
	}
	part.Records = r.word()
	for _, f := range s.counters {
		*f.Counter(&part.Counters), *f.Counter(&part.Again), *f.Counter(&part.Back) = r.word(), r.word(), r.word()
	}
	if s.trips {
		part.Trips = query.RoundTrips{Seen: r.word(), Responder: r.word(), Responders: r.word(), Initiator: r.word(), Initiators: r.word()}
	}
	for _, f := range s.sums {
		note(r.value(f, &part.Record))
	}
	return step, err
}

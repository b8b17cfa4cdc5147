package api

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// RowField is one value of a row. The JSON of a row and its CSV are made of them,
// so that both have the same values under the same names.
type RowField struct {
	Name   string    // as flow.Field.Name
	Kind   flow.Kind //
	Unit   string    // as flow.Field.Unit
	Doc    string    // one sentence; of what no record has
	merge  flow.Merge
	object string // of rtt.responder_ns: rtt; see flow.Field.Inside
	key    string

	absent func(*flow.Origin, *query.Row) bool
	append func([]byte, *flow.Origin, *query.Row) []byte
	set    func(string, *flow.Origin, *query.Row) error // nil: follows from others
}

// RowFields are the fields of rows grouped by the keys: those of the record in its
// order, of which rows by flow have all, and those that only rows have.
func RowFields(by []query.Key, step time.Duration) []RowField {
	whole := query.By{Keys: by}.Whole()
	isKey := func(name string) bool {
		return slices.ContainsFunc(by, func(k query.Key) bool { return k.Name == name })
	}
	return slices.DeleteFunc(slices.Clone(rowFields), func(f RowField) bool {
		if f.Name == "time" {
			return step == 0
		}
		switch f.merge {
		case flow.MergeKey:
			return !isKey(f.Name) && (!whole || f.Doc != "")
		case flow.MergeFirst:
			return !whole && !isKey(f.Name)
		}
		return false
	})
}

// rowFields are all there are.
var rowFields = func() []RowField {
	fields := []RowField{
		timeField(),
		nameField("in", "interface on which the flow came in; absent: it began at this host", func(w *query.Row) *string { return &w.In }),
		nameField("out", "interface on which the flow left; absent: it ended at this host", func(w *query.Row) *string { return &w.Out }),
	}
	for i := range flow.Fields {
		fields = append(fields, recordField(&flow.Fields[i]))
	}
	noBack := func(w *query.Row) bool { return w.Back == flow.Counters{} }
	never := func(*query.Row) bool { return false }
	fields = append(
		fields,
		countField("records", "flow records in the row", never, func(w *query.Row) *uint64 { return &w.Records }),
		countField("rtt_records", "those with a round trip; absent: none", func(w *query.Row) bool { return w.RTTSeen == 0 }, func(w *query.Row) *uint64 { return &w.RTTSeen }),
	)
	for i := range flow.CounterFields {
		f := &flow.CounterFields[i]
		doc := f.Name + " of the way back, part of " + f.Name
		if i == 0 {
			doc += "; absent: both ways are not in one row, or nothing came back"
		}
		absent := noBack
		if f.Absent != nil {
			absent = func(w *query.Row) bool { return *f.Counter(&w.Back) == 0 }
			doc += "; absent: none"
		}
		fields = append(fields, countField("back."+f.Name, doc, absent, func(w *query.Row) *uint64 { return f.Counter(&w.Back) }))
	}
	return fields
}()

// ExtraFields are the fields of rows that records do not have, for the reference.
func ExtraFields() []RowField {
	return slices.DeleteFunc(slices.Clone(rowFields), func(f RowField) bool { return f.Doc == "" })
}

func newRowField(name string, kind flow.Kind, doc string) RowField {
	f := RowField{Name: name, Kind: kind, Doc: doc}
	f.object, f.key = (&flow.Field{Name: name}).Inside()
	return f
}

// recordField is a field of the record.
func recordField(of *flow.Field) RowField {
	f := newRowField(of.Name, of.Kind, "")
	f.Unit, f.merge = of.Unit, of.Merge
	f.absent = func(o *flow.Origin, w *query.Row) bool { return of.Absent != nil && of.Absent(o, &w.Record) }
	f.append = func(b []byte, o *flow.Origin, w *query.Row) []byte { return of.Append(b, o, &w.Record) }
	if of.Set != nil {
		f.set = func(s string, o *flow.Origin, w *query.Row) error { return of.Set(s, o, &w.Record) }
	}
	switch of.Name {
	case "host":
		f.ofHost()
	case "src":
		f.cut(func(w *query.Row) (*netip.Addr, *netip.Prefix) { return &w.Src, &w.SrcPrefix })
	case "dst":
		f.cut(func(w *query.Row) (*netip.Addr, *netip.Prefix) { return &w.Dst, &w.DstPrefix })
	}
	return f
}

// ofHost has the row say which host counted it, where the agent that answers has records of several.
func (f *RowField) ofHost() {
	own, set := f.append, f.set
	f.append = func(b []byte, o *flow.Origin, w *query.Row) []byte {
		if w.Host != "" {
			return append(b, w.Host...)
		}
		return own(b, o, w)
	}
	f.set = func(s string, o *flow.Origin, w *query.Row) error {
		w.Host = s
		return set(s, o, w)
	}
}

// cut makes an address a prefix where the key cut it.
func (f *RowField) cut(of func(*query.Row) (*netip.Addr, *netip.Prefix)) {
	whole := f.append
	f.append = func(b []byte, o *flow.Origin, w *query.Row) []byte {
		if _, p := of(w); p.IsValid() && !p.IsSingleIP() {
			return p.AppendTo(b)
		}
		return whole(b, o, w)
	}
	f.set = func(s string, _ *flow.Origin, w *query.Row) error {
		a, p := of(w)
		var err error
		if *p, err = parsePrefix(s); err == nil {
			*a = p.Addr()
		}
		return err
	}
}

func nameField(name, doc string, of func(*query.Row) *string) RowField {
	f := newRowField(name, flow.Text, doc)
	f.absent = func(_ *flow.Origin, w *query.Row) bool { return *of(w) == "" }
	f.append = func(b []byte, _ *flow.Origin, w *query.Row) []byte { return append(b, *of(w)...) }
	f.set = func(s string, _ *flow.Origin, w *query.Row) error { *of(w) = s; return nil }
	return f
}

// timeField is the begin of a step, to the second.
func timeField() RowField {
	f := newRowField("time", flow.Time, "begin of the step of time that the row counts; absent: the request has no steps")
	f.absent = func(_ *flow.Origin, w *query.Row) bool { return w.Time.IsZero() }
	f.append = func(b []byte, _ *flow.Origin, w *query.Row) []byte { return w.Time.UTC().AppendFormat(b, time.RFC3339) }
	f.set = func(s string, _ *flow.Origin, w *query.Row) (err error) {
		w.Time, err = time.Parse(time.RFC3339, s)
		return err
	}
	return f
}

func countField(name, doc string, absent func(*query.Row) bool, of func(*query.Row) *uint64) RowField {
	f := newRowField(name, flow.Number, doc)
	f.merge = flow.MergeSum
	f.absent = func(_ *flow.Origin, w *query.Row) bool { return absent(w) }
	f.append = func(b []byte, _ *flow.Origin, w *query.Row) []byte { return strconv.AppendUint(b, *of(w), 10) }
	f.set = func(s string, _ *flow.Origin, w *query.Row) (err error) {
		*of(w), err = strconv.ParseUint(s, 10, 64)
		return err
	}
	return f
}

// Text is the value of the field for people and for CSV, a protocol by its name; none
// where it is absent.
func (f *RowField) Text(o *flow.Origin, w *query.Row) string {
	switch {
	case f.absent(o, w):
		return ""
	case f.Kind == flow.Protocol:
		return flow.ProtoName(w.Proto)
	}
	return string(f.append(nil, o, w))
}

func parsePrefix(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return netip.ParsePrefix(text)
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

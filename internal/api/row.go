package api

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// sums are the fields of a record that rows have besides their keys.
var sums = []string{
	"unattributed", "tcp_flags", "packets", "bytes", "wire_bytes", "payload_bytes", "fragments", "ce_packets",
	"first", "last", "ttl_min", "ttl_max", "initiator", "initiator_by", "rtt.responder_ns", "rtt.initiator_ns", "rtt.handshake_ns",
}

// RowField is a field of the table flow.Fields in a row.
type RowField struct {
	*flow.Field
	object, key string     // of rtt.responder_ns: rtt and responder_ns; see flow.Field.Inside
	cut         *store.Key // an address that may be cut to a prefix
}

func newRowField(f *flow.Field) RowField {
	out := RowField{Field: f}
	out.object, out.key = f.Inside()
	return out
}

// RowFields are the fields of rows merged by the keys, in the order of the
// record. Rows by flow have them all.
func RowFields(by []store.Key) []RowField {
	whole := store.By{Keys: by}.Whole()
	var fields []RowField
	for i := range flow.Fields {
		f := newRowField(&flow.Fields[i])
		n := slices.IndexFunc(by, func(k store.Key) bool { return k.Name == f.Name })
		switch {
		case n >= 0:
			f.cut = &by[n]
			fields = append(fields, f)
		case whole, slices.Contains(sums, f.Name), strings.HasPrefix(f.Name, "pdm."):
			fields = append(fields, f)
		}
	}
	return fields
}

// appendRow writes a row as one JSON object.
func appendRow(b []byte, fields []RowField, o *flow.Origin, w *store.Row) []byte {
	b = append(b, '{')
	object := ""
	for i := range fields {
		f := &fields[i]
		if f.Absent != nil && f.Absent(o, &w.Record) {
			continue
		}
		if f.object != object {
			b = flow.Reopen(b, object, f.object)
			object = f.object
		}
		b = append(append(comma(b), quoted(f.key)...), ':')
		text := f.text(o, w)
		if f.Kind.Quoted() {
			text = quoted(text)
		}
		b = append(b, text...)
	}
	b = flow.Reopen(b, object, "")
	b = append(comma(b), `"records":`...)
	b = strconv.AppendUint(b, w.Records, 10)
	if w.RTTSeen > 0 {
		b = append(b, `,"rtt_records":`...)
		b = strconv.AppendUint(b, w.RTTSeen, 10)
	}
	if back := w.Back; back != (store.Counters{}) {
		b = fmt.Appendf(b, `,"back":{"packets":%d,"bytes":%d,"wire_bytes":%d,"payload_bytes":%d}`,
			back.Packets, back.Bytes, back.WireBytes, back.PayloadBytes)
	}
	return append(b, '}')
}

// comma separates from what stands before, if that is a value.
func comma(b []byte) []byte {
	if b[len(b)-1] == '{' {
		return b
	}
	return append(b, ',')
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // of a string there is no error
	}
	return string(b)
}

// Value is the value of the field as text; none where it is absent.
func (f *RowField) Value(o *flow.Origin, w *store.Row) string {
	if f.Absent != nil && f.Absent(o, &w.Record) {
		return ""
	}
	return f.text(o, w)
}

// text is the value of the field; a cut address is a prefix.
func (f *RowField) text(o *flow.Origin, w *store.Row) string {
	if f.cut != nil && f.Kind == flow.Address {
		prefix, name := w.SrcPrefix, f.Name
		if name == "dst" {
			prefix = w.DstPrefix
		}
		if !prefix.IsSingleIP() {
			return prefix.String()
		}
	}
	return string(f.Append(nil, o, &w.Record))
}

// decodeRow is the inverse of appendRow.
func decodeRow(data []byte, w *store.Row) error {
	var more struct {
		Records    uint64 `json:"records"`
		RTTRecords uint64 `json:"rtt_records"`
		Back       Totals `json:"back"`
	}
	if err := json.Unmarshal(data, &more); err != nil {
		return err
	}
	objects, err := flow.ParseObjects(data)
	if err != nil {
		return err
	}
	*w = store.Row{Records: more.Records, RTTSeen: more.RTTRecords, Back: store.Counters(more.Back)}
	var o flow.Origin
	for i := range flow.Fields {
		f := newRowField(&flow.Fields[i])
		values, err := objects.Get(f.object)
		if err != nil {
			return err
		}
		raw, ok := values[f.key]
		if !ok || f.Set == nil {
			continue
		}
		if err := f.decode(raw, &o, w); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

func (f *RowField) decode(raw json.RawMessage, o *flow.Origin, w *store.Row) error {
	text := string(raw)
	if f.Kind.Quoted() {
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
	}
	if f.Kind != flow.Address {
		return f.Set(text, o, &w.Record)
	}
	prefix, err := parsePrefix(text)
	if err != nil {
		return err
	}
	if f.Name == "src" {
		w.Src, w.SrcPrefix = prefix.Addr(), prefix
	} else {
		w.Dst, w.DstPrefix = prefix.Addr(), prefix
	}
	return nil
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

package jsonl

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/waymark-net/waymark/internal/flow"
)

// Decode is the inverse of Append. Keys that this version does not know are
// passed over; a known key that is missing or whose value is impossible is an
// error that names it. IfIndex is not part of the JSON record.
func Decode(line []byte) (flow.Origin, flow.Record, error) {
	var o flow.Origin
	var r flow.Record
	objects, err := flow.ParseObjects(line)
	if err != nil {
		return o, r, fmt.Errorf("decode flow record: %w", err)
	}
	var missing []*column
	for i := range columns {
		c := &columns[i]
		values, err := objects.Get(c.object)
		if err != nil {
			return o, r, fmt.Errorf("decode flow record: %w", err)
		}
		raw, ok := values[c.key]
		if c.Set == nil {
			continue
		}
		if !ok {
			missing = append(missing, c)
			continue
		}
		if err := c.set(raw, &o, &r); err != nil {
			return o, r, fmt.Errorf("decode flow record: %s: %w", c.Name, err)
		}
	}
	for _, c := range missing {
		if c.Absent == nil || !c.Absent(&o, &r) {
			return o, r, fmt.Errorf("decode flow record: %s is missing", c.Name)
		}
	}
	if !r.Unattributed && (r.Src.Is6() != (r.Family == 6) || r.Dst.Is6() != (r.Family == 6)) {
		return o, r, fmt.Errorf("decode flow record: %s and %s are not both of the family given", r.Src, r.Dst)
	}
	return o, r, nil
}

// set gives the field its value, after a check of type and range.
func (c *column) set(raw json.RawMessage, o *flow.Origin, r *flow.Record) error {
	text := string(raw)
	if c.Kind == flow.Protocol && text[0] == '"' {
		var word string
		if err := json.Unmarshal(raw, &word); err != nil {
			return err
		}
		n, err := flow.ParseProto(word)
		if err != nil {
			return err
		}
		text = strconv.Itoa(int(n))
	}
	switch c.Kind {
	case flow.Number, flow.Protocol, flow.Bits:
		if v, err := strconv.ParseUint(text, 10, 64); err != nil || v > c.Max {
			return fmt.Errorf("%s: want a whole number up to %d", text, c.Max)
		}
	case flow.Signed:
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("%s: want a whole number", text)
		}
	case flow.Pairs: // Set looks closer
	case flow.Flag:
		if text != "true" && text != "false" {
			return fmt.Errorf("%s: want true or false", text)
		}
	default:
		if text[0] != '"' {
			return fmt.Errorf("%s: want a string", text)
		}
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
	}
	return c.Set(text, o, r)
}

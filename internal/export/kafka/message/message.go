// Package message encodes flow records as protobuf messages, a superset of goflow2's FlowMessage. Input: records. Output: messages, each
// behind its length, as goflow2 has them; their schema. Callers: package producer, and the generator of the reference.
package message

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waymark-net/waymark/internal/flow"
)

// Fields of goflow2 that follow from several of a record.
const (
	inInterface   protowire.Number = 18
	outInterface  protowire.Number = 19
	etherType     protowire.Number = 30
	receivedNanos protowire.Number = 110
	samplingRate  protowire.Number = 3
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
)

// column is a field of flow records in messages.
type column struct {
	*flow.Field
	number protowire.Number
}

var columns = func() (list []column) {
	for i := range flow.Fields {
		f := &flow.Fields[i]
		list = append(list, column{f, protowire.Number(f.Protobuf().Number)})
	}
	return list
}()

// common is how many columns there are before the objects pdm and ioam, which few records have.
var common = slices.IndexFunc(columns, func(c column) bool { return strings.HasPrefix(c.Name, "pdm.") })

// Encoder encodes the records of an agent. Its memory is reused.
type Encoder struct {
	Origin   flow.Origin
	Received time.Time // when the interval of the records ended
	message  []byte
	text     []byte
}

// Append adds a record behind the length of its message.
func (e *Encoder) Append(b []byte, r *flow.Record) []byte {
	m := e.message[:0]
	in, out := r.IfIndex, r.OtherIfIndex
	if r.Direction == flow.Egress {
		in, out = out, in
	}
	m = appendNumber(m, inInterface, uint64(in))
	m = appendNumber(m, outInterface, uint64(out))
	switch r.Family {
	case 4:
		m = appendNumber(m, etherType, etherTypeIPv4)
	case 6:
		m = appendNumber(m, etherType, etherTypeIPv6)
	}
	m = appendNumber(m, receivedNanos, uint64(e.Received.UnixNano()))
	columns := columns
	if r.PDM == nil && r.IOAM == nil {
		columns = columns[:common]
	}
	for i := range columns {
		c := &columns[i]
		if c.number == samplingRate { // consumers multiply by it, so it is always there
			m = appendNumber(m, c.number, uint64(max(1, e.Origin.Sampling)))
			continue
		}
		if c.Absent == nil || !c.Absent(&e.Origin, r) {
			m = e.appendField(m, c, r)
		}
	}
	e.message = m
	return protowire.AppendBytes(b, m)
}

// appendField adds a value; 0 goes without saying, unless it may be missing.
func (e *Encoder) appendField(m []byte, c *column, r *flow.Record) []byte {
	switch {
	case c.Kind == flow.Address:
		if a := c.Addr(r); a.IsValid() {
			m = appendAddress(m, c.number, a)
		}
		return m
	case c.Kind == flow.Time:
		return appendNumber(m, c.number, uint64(c.Nanos(r)))
	case c.Kind == flow.Pairs:
		return e.appendPairs(m, c, r)
	case c.Kind.Quoted():
		e.text = c.Append(e.text[:0], &e.Origin, r)
		return appendText(m, c.number, e.text)
	case c.Missing != nil:
		return protowire.AppendVarint(protowire.AppendTag(m, c.number, protowire.VarintType), c.Uint(r))
	}
	return appendNumber(m, c.number, c.Uint(r))
}

// appendPairs adds a histogram: index and count of each bucket by turns, packed.
func (e *Encoder) appendPairs(m []byte, c *column, r *flow.Record) []byte {
	e.text = e.text[:0]
	for _, b := range c.Buckets(r) {
		e.text = protowire.AppendVarint(e.text, uint64(b.Index))
		e.text = protowire.AppendVarint(e.text, b.Count)
	}
	if len(e.text) == 0 {
		return m
	}
	return protowire.AppendBytes(protowire.AppendTag(m, c.number, protowire.BytesType), e.text)
}

func appendAddress(m []byte, number protowire.Number, a netip.Addr) []byte {
	return protowire.AppendBytes(protowire.AppendTag(m, number, protowire.BytesType), a.AsSlice())
}

func appendNumber(m []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), n)
}

func appendText(m []byte, number protowire.Number, text []byte) []byte {
	if len(text) == 0 {
		return m
	}
	m = protowire.AppendTag(m, number, protowire.BytesType)
	if !utf8.Valid(text) { // as protobuf demands
		return protowire.AppendString(m, strings.ToValidUTF8(string(text), "\uFFFD"))
	}
	return protowire.AppendBytes(m, text)
}

// Schema is the schema of the messages, in protobuf's language.
func Schema() string {
	var b strings.Builder
	b.WriteString(`// Flow records in Kafka, as exporter kafka of Waymark writes them. Each message is behind its length (delimited).
//
// Version 1. Numbers are never used twice, and names do not change. Fields below 1000 are those of goflow2's FlowMessage, so that
// its consumers read these messages, too. What a record does not have is absent; 0 and "" are, too, unless a field is optional.
syntax = "proto3";
package waymark;
option go_package = "github.com/waymark-net/waymark/flow;flow";

message FlowMessage {
`)
	line := func(kind, name string, number int32, doc string) {
		fmt.Fprintf(&b, "  // %s\n  %s %s = %s;\n", doc, kind, name, strconv.Itoa(int(number)))
	}
	line("uint32", "in_if", int32(inInterface), "index of the interface of an ingress record; of an egress record that of other_iface")
	line("uint32", "out_if", int32(outInterface), "index of the interface of an egress record; of an ingress record that of other_iface")
	line("uint32", "etype", int32(etherType), "EtherType: 0x0800 IPv4, 0x86dd IPv6")
	line("uint64", "time_received_ns", int32(receivedNanos), "end of the interval in which the packets were counted, in nanoseconds since 1970")
	for i := range flow.Fields {
		f := &flow.Fields[i]
		p := f.Protobuf()
		if f.Missing != nil && f.Kind != flow.Address && f.Kind != flow.Pairs {
			p.Type = "optional " + p.Type
		}
		line(p.Type, p.Name, p.Number, docOf(f))
	}
	b.WriteString("}\n")
	return b.String()
}

func docOf(f *flow.Field) string {
	doc := f.Doc
	switch {
	case f.Name == "sampling":
		return "one packet in so many was counted; always there"
	case f.Kind == flow.Name:
		doc += "; one of " + strings.Join(f.Choices(), ", ")
	case f.Kind == flow.Pairs:
		doc += "; index and count of each by turns"
	case f.Kind == flow.Time:
		doc += ", in nanoseconds since 1970"
	}
	return doc
}

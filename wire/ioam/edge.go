package ioam

import (
	"encoding/binary"
	"math/bits"
)

// E2EType says which fields an edge-to-edge option has (RFC 9197 section 4.6).
type E2EType uint16

// The fields, in the order of the wire.
const (
	E2ESequence64 E2EType = 0x8000 >> iota // never with E2ESequence32
	E2ESequence32
	E2ESeconds
	E2EFraction
	definedE2E = E2ESequence64 | E2ESequence32 | E2ESeconds | E2EFraction
)

// E2E is the body of an edge-to-edge option: it goes from the encapsulating to the
// decapsulating node unchanged.
type E2E struct {
	Namespace         uint16
	Type              E2EType
	Sequence64        uint64
	Sequence32        uint32
	Seconds, Fraction uint32 // when the packet entered the domain; see TimeFormat
}

// Kind implements [Body].
func (*E2E) Kind() Kind { return EdgeToEdge }

// AppendTo implements [Body].
func (e *E2E) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, e.Namespace)
	b = binary.BigEndian.AppendUint16(b, uint16(e.Type))
	if e.Type&E2ESequence64 != 0 {
		b = binary.BigEndian.AppendUint64(b, e.Sequence64)
	}
	for _, f := range e.words() {
		if e.Type&f.bit != 0 {
			b = binary.BigEndian.AppendUint32(b, *f.value)
		}
	}
	return b
}

type e2eWord struct {
	bit   E2EType
	value *uint32
}

// words are the fields of 4 bytes.
func (e *E2E) words() [3]e2eWord {
	return [3]e2eWord{{E2ESequence32, &e.Sequence32}, {E2ESeconds, &e.Seconds}, {E2EFraction, &e.Fraction}}
}

// e2e reads an edge-to-edge body.
func (r *reader) e2e() *E2E {
	if !r.has(4, "an edge-to-edge option") {
		return nil
	}
	e := &E2E{Namespace: binary.BigEndian.Uint16(r.body), Type: E2EType(binary.BigEndian.Uint16(r.body[2:]))}
	if u := e.Type &^ definedE2E; u != 0 {
		r.problems.add(r.at+2, ErrUndefined, "%04X of E2E-Type %04X", uint16(u), uint16(e.Type))
	}
	if e.Type&E2ESequence64 != 0 && e.Type&E2ESequence32 != 0 {
		r.problems.add(r.at+2, ErrTwoSequences, "E2E-Type %04X", uint16(e.Type))
	}
	at := 4
	if e.Type&E2ESequence64 != 0 {
		if !r.has(at+8, "the sequence number") {
			e.Type &^= definedE2E
			return e
		}
		e.Sequence64 = binary.BigEndian.Uint64(r.body[at:])
		at += 8
	}
	for _, f := range e.words() {
		if e.Type&f.bit == 0 {
			continue
		}
		if !r.has(at+4, "an edge-to-edge option of this E2E-Type") {
			e.Type &^= definedE2E & (f.bit<<1 - 1) // these fields are not there
			return e
		}
		*f.value = binary.BigEndian.Uint32(r.body[at:])
		at += 4
	}
	if e.Type&^definedE2E == 0 { // undefined fields may be behind
		r.ends(at, "the last field of the edge-to-edge option")
	}
	return e
}

// DEXFlags are the Extension-Flags of direct export (RFC 9326 section 3.2).
type DEXFlags uint8

// The optional fields that are defined.
const (
	DEXFlowID DEXFlags = 0x80 >> iota
	DEXSequence
	definedDEX = DEXFlowID | DEXSequence
)

// DEX is the body of a direct export option (RFC 9326 section 3.2): transit nodes
// export the fields of Type and leave the packet as it is.
type DEX struct {
	Namespace uint16
	Flags     uint8 // none is defined
	Extension DEXFlags
	Type      TraceType
	Reserved  uint8
	FlowID    uint32
	Sequence  uint32
	Undefined []uint32 // of further Extension-Flags, in their order
}

// Kind implements [Body].
func (*DEX) Kind() Kind { return DirectExport }

// AppendTo implements [Body].
func (d *DEX) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, d.Namespace)
	b = append(b, d.Flags, uint8(d.Extension))
	b = binary.BigEndian.AppendUint32(b, uint32(d.Type&maxTraceType)<<8|uint32(d.Reserved))
	if d.Extension&DEXFlowID != 0 {
		b = binary.BigEndian.AppendUint32(b, d.FlowID)
	}
	if d.Extension&DEXSequence != 0 {
		b = binary.BigEndian.AppendUint32(b, d.Sequence)
	}
	for _, v := range d.Undefined {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

const dexHeaderSize = 8

// dex reads a direct export body.
func (r *reader) dex() *DEX {
	if !r.has(dexHeaderSize, "a direct export option") {
		return nil
	}
	word := binary.BigEndian.Uint32(r.body[4:])
	d := &DEX{
		Namespace: binary.BigEndian.Uint16(r.body), Flags: r.body[2], Extension: DEXFlags(r.body[3]),
		Type: TraceType(word >> 8), Reserved: uint8(word),
	}
	r.dexBits(d)
	at := dexHeaderSize
	for _, f := range []struct {
		flag  DEXFlags
		value *uint32
	}{{DEXFlowID, &d.FlowID}, {DEXSequence, &d.Sequence}} {
		if d.Extension&f.flag == 0 {
			continue
		}
		if !r.has(at+4, "a direct export option of these Extension-Flags") {
			d.Extension &^= f.flag<<1 - 1
			return d
		}
		*f.value = binary.BigEndian.Uint32(r.body[at:])
		at += 4
	}
	n := bits.OnesCount8(uint8(d.Extension &^ definedDEX))
	if !r.has(at+4*n, "a direct export option of these Extension-Flags") {
		d.Extension &= definedDEX
		return d
	}
	for range n {
		d.Undefined = append(d.Undefined, binary.BigEndian.Uint32(r.body[at:]))
		at += 4
	}
	r.ends(at, "the last field of the direct export option")
	return d
}

// dexBits notes bits that must not be set.
func (r *reader) dexBits(d *DEX) {
	p := r.problems
	if d.Flags != 0 {
		p.add(r.at+2, ErrUndefined, "Flags are %02X", d.Flags)
	}
	if u := d.Extension &^ definedDEX; u != 0 {
		p.add(r.at+3, ErrUndefined, "%02X of Extension-Flags %02X", uint8(u), uint8(d.Extension))
	}
	if u := d.Type & UndefinedFields; u != 0 {
		p.add(r.at+4, ErrUndefined, "%v of Trace-Type %v", u, d.Type)
	}
	if d.Type&reservedType != 0 {
		p.add(r.at+6, ErrReserved, "the lowest bit of Trace-Type %v", d.Type)
	}
	if d.Reserved != 0 {
		p.add(r.at+7, ErrReserved, "byte behind Trace-Type is %02X", d.Reserved)
	}
}

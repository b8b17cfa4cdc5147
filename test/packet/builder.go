// Package packet builds frames, right ones and wrong ones, and holds the table
// of what the flow probes must make of them. Only tests and benchmarks use it:
// those of the BPF programs, of internal/capture and of the exporters.
//
// A packet reads from the outside in:
//
//	Eth().VLAN(5).IPv6("2001:db8::1", "2001:db8::2").HopByHop().UDP(1000, 53).Payload(100).Bytes()
//
// Lengths, next headers and checksums are right unless overridden. A modifier
// (TTL, Flags, TotalLength, …) changes the layer named last, whose checksum is
// computed over the changed header, so that only what was asked for is wrong. A
// Builder is a value: a common beginning can be kept and continued twice. A
// mistake in a test, such as a malformed address or a modifier that the layer
// does not have, panics.
package packet

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Builder is a packet under construction.
type Builder struct {
	layers []layer
	size   int // smallest length of the frame, see PadTo
}

// layer is one header, or payload, as it will be sent but for the fields that
// depend on what follows.
type layer struct {
	*spec
	head     []byte
	patches  []func(head []byte)
	checksum *uint16 // sent instead of the right one
}

// spec is what all headers of one protocol have in common.
type spec struct {
	name      string
	etherType uint16 // how Ethernet, GRE and Geneve name it; 0: they don't
	proto     int    // how IP names it; none: it does not
	next      *field // where it names what follows
	last      uint8  // what it names when nothing follows
	lengths   func(head []byte, payload int)
	sum       *field // where its checksum is
	compute   func(c covered) uint64
}

// none is the protocol of what cannot follow an IP header.
const none = -1

// field is a place in a header, of 1, 2 or 4 bytes.
type field struct{ offset, width int }

func (f *field) put(head []byte, v uint64) {
	switch f.width {
	case 1:
		head[f.offset] = byte(v)
	case 2:
		binary.BigEndian.PutUint16(head[f.offset:], uint16(v))
	case 4:
		binary.BigEndian.PutUint32(head[f.offset:], uint32(v))
	}
}

// covered is what a checksum may cover: the header with its checksum field 0,
// what follows, and the IP header before it for the pseudo-header.
type covered struct {
	ip            *layer
	proto         uint8
	head, payload []byte
}

// Bytes is the frame.
func (b Builder) Bytes() []byte {
	var out []byte
	for i := len(b.layers) - 1; i >= 0; i-- {
		var next *spec
		if i+1 < len(b.layers) {
			next = b.layers[i+1].spec
		}
		out = append(b.layers[i].finish(next, b.enclosingIP(i), out), out...)
	}
	for len(out) < b.size {
		out = append(out, 0)
	}
	return out
}

func (l *layer) finish(next *spec, ip *layer, payload []byte) []byte {
	head := slices.Clone(l.head)
	if l.next != nil {
		l.next.put(head, l.nameOf(next))
	}
	if l.lengths != nil {
		l.lengths(head, len(payload))
	}
	for _, patch := range l.patches {
		patch(head)
	}
	if l.sum == nil {
		return head
	}
	if l.checksum != nil {
		l.sum.put(head, uint64(*l.checksum))
		return head
	}
	l.sum.put(head, 0)
	l.sum.put(head, l.compute(covered{ip: ip, proto: uint8(l.proto), head: head, payload: payload}))
	return head
}

// nameOf is the number by which l names next.
func (l *layer) nameOf(next *spec) uint64 {
	switch {
	case next == nil || next == payload:
		return uint64(l.last)
	case l.next.width == 2:
		return uint64(next.etherType)
	case next.proto == none:
		return uint64(l.last)
	default:
		return uint64(next.proto)
	}
}

func (b Builder) enclosingIP(i int) *layer {
	for i--; i >= 0; i-- {
		if b.layers[i].spec == ipv4 || b.layers[i].spec == ipv6 {
			return &b.layers[i]
		}
	}
	return nil
}

func (b Builder) add(s *spec, head []byte) Builder {
	b.layers = append(slices.Clone(b.layers), layer{spec: s, head: head})
	return b
}

// change returns b with its last layer, which must be one of allowed, changed
// by f. An empty allowed allows every layer.
func (b Builder) change(what string, f func(l *layer), allowed ...*spec) Builder {
	if len(b.layers) == 0 {
		panic("packet: " + what + " of an empty packet")
	}
	b.layers = slices.Clone(b.layers)
	l := &b.layers[len(b.layers)-1]
	if len(allowed) > 0 && !slices.Contains(allowed, l.spec) {
		panic(fmt.Sprintf("packet: %s has no %s", l.name, what))
	}
	l.head = slices.Clone(l.head)
	l.patches = slices.Clone(l.patches)
	f(l)
	return b
}

// patch is a change made after lengths and next header have been written.
func (b Builder) patch(what string, f func(head []byte), allowed ...*spec) Builder {
	return b.change(what, func(l *layer) { l.patches = append(l.patches, f) }, allowed...)
}

// Set overwrites bytes of the last header, for fields without a modifier.
func (b Builder) Set(offset int, data ...byte) Builder {
	return b.patch("bytes", func(head []byte) { copy(head[offset:offset+len(data)], data) })
}

// NextHeader overrides the protocol number (IPv4, IPv6, extension headers) by
// which the last layer names what follows.
func (b Builder) NextHeader(proto uint8) Builder { return b.follow("next header", 1, uint64(proto)) }

// EtherType overrides the EtherType by which the last layer (Ethernet, VLAN tag,
// GRE, Geneve) names what follows.
func (b Builder) EtherType(t uint16) Builder { return b.follow("EtherType", 2, uint64(t)) }

// follow overrides a field of so many bytes by which the last layer names what follows.
func (b Builder) follow(what string, width int, v uint64) Builder {
	return b.change(what, func(l *layer) {
		if l.next == nil || l.next.width != width {
			panic("packet: " + l.name + " has no " + what)
		}
		next := l.next
		l.patches = append(l.patches, func(head []byte) { next.put(head, v) })
	})
}

// Checksum overrides the checksum of the last layer.
func (b Builder) Checksum(v uint16) Builder {
	return b.change("checksum", func(l *layer) {
		if l.sum == nil {
			panic("packet: " + l.name + " has no checksum")
		}
		l.checksum = &v
	})
}

var payload = &spec{name: "payload", proto: none}

// Payload adds n bytes of content.
func (b Builder) Payload(n int) Builder {
	content := make([]byte, n)
	for i := range content {
		content[i] = byte('a' + i%26)
	}
	return b.Raw(content)
}

// Raw adds content.
func (b Builder) Raw(content []byte) Builder { return b.add(payload, slices.Clone(content)) }

// PadTo adds zeros behind the packet, as Ethernet does for short frames. No
// length field covers them.
func (b Builder) PadTo(size int) Builder {
	b.size = size
	return b
}

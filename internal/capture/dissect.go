package capture

import (
	"encoding/binary"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// frame is a packet as the kernel or a file shows it.
type frame struct {
	data   []byte // captured bytes; may be fewer than length
	length int    // of the frame, without what is outside it
	link   link

	etherType uint16 // linkCooked: of what data begins with
	tagged    bool   // the outermost VLAN tag is outside data, tci is its content
	tci       uint16
	outside   int // bytes on the wire that are not in data, such as that tag
	gso       gso
}

// gso is what the kernel says of a frame that stands for several segments.
type gso struct {
	size int // payload of a segment; 0: the frame stands for itself
	// Where the innermost transport header is; 0: not known.
	transportAt int
	tcp         bool // what it is: TCP, or UDP
}

// link is what a frame begins with.
type link uint8

const (
	linkEthernet link = iota
	linkNone          // an IP header, of the version that it tells
	linkCooked        // what frame.etherType says; the link header is taken off
)

// parsed is what one pass over the headers finds.
type parsed struct {
	flow.Key // interface and direction are the caller's

	bytes   int // bytes of the IP packet
	payload int // bytes above the transport header

	// Where, from the frame's first byte, the flow's IP header, its transport
	// header and its payload begin.
	ipAt, transportAt, payloadAt int

	flowLabel, vni uint32
	seq, ack       uint32 // TCP
	tcpFlags       uint16
	tos, ttl       uint8

	fragment fragment
	// Of a fragment: its id, and the protocol as its IPv4 header names it.
	fragmentID    uint32
	fragmentProto uint8
}

// fragment is the kind of an IP fragment.
type fragment uint8

const (
	fragmentNone fragment = iota
	fragmentFirst
	fragmentLater
)

const (
	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeTEB  = 0x6558
	typeVLAN = 0x8100
	typeIPv6 = 0x86dd
	typeQinQ = 0x88a8

	etherLen     = 14
	tagLen       = 4
	vlanTagsMax  = 2
	extHeaderMax = 8
)

// dissect finds the flow of a frame: the inner one of the tunnels asked for. It
// neither allocates nor keeps f. Of a packet that is not counted, p has what was
// read up to there.
func (p *parsed) dissect(f *frame, tunnels tunnelSet) reason {
	*p = parsed{}
	d := dissector{data: f.data, end: f.length, gso: f.gso.size > 0}
	etherType, why := d.linkHeader(f, p)
	if why != counted {
		return why
	}
	switch etherType {
	case typeIPv4, typeIPv6:
	case typeARP:
		return reasonARP
	default:
		return reasonEtherType
	}
	if why := d.ip(p, etherType); why != counted {
		return why
	}
	if tunnels != 0 {
		p.enter(&d, tunnels)
	}
	return counted
}

// dissector is a cursor over a frame. Two bounds count: a header beyond end,
// where the packet ends by its own length, is malformed; one beyond the data
// was not captured.
type dissector struct {
	data []byte
	pos  int
	end  int
	gso  bool
}

// take returns the n bytes under the cursor and moves behind them.
func (d *dissector) take(n int) ([]byte, bool) {
	if d.pos+n > len(d.data) || d.pos+n > d.end {
		return nil, false
	}
	b := d.data[d.pos : d.pos+n]
	d.pos += n
	return b, true
}

// missing is why take failed.
func (d *dissector) missing(n int) reason {
	if d.pos+n > d.end {
		return reasonMalformed
	}
	return reasonTruncated
}

// linkHeader moves behind the link header and tells what follows.
func (d *dissector) linkHeader(f *frame, p *parsed) (etherType uint16, why reason) {
	switch f.link {
	case linkNone:
		if len(d.data) > 0 && d.data[0]>>4 == 6 {
			return typeIPv6, counted
		}
		return typeIPv4, counted
	case linkCooked:
		etherType = f.etherType
	default:
		b, ok := d.take(etherLen)
		if !ok {
			return 0, reasonTruncated
		}
		etherType = binary.BigEndian.Uint16(b[12:])
	}
	tags := 0
	if f.tagged {
		p.VLAN = f.tci & 0xfff
		tags++
	}
	for ; etherType == typeVLAN || etherType == typeQinQ; tags++ {
		if tags == vlanTagsMax {
			return 0, reasonVLANDepth
		}
		b, ok := d.take(tagLen)
		if !ok {
			return 0, reasonTruncated
		}
		id := binary.BigEndian.Uint16(b) & 0xfff
		if tags == 0 {
			p.VLAN = id
		} else {
			p.InnerVLAN = id
		}
		etherType = binary.BigEndian.Uint16(b[2:])
	}
	return etherType, counted
}

// ip reads an IP header and all that follows up to the payload.
func (d *dissector) ip(p *parsed, etherType uint16) reason {
	p.ipAt = d.pos
	var why reason
	if etherType == typeIPv6 {
		why = d.ipv6(p)
	} else {
		why = d.ipv4(p)
	}
	if why != counted {
		return why
	}
	if why := d.extensions(p); why != counted {
		return why
	}
	p.transportAt = d.pos
	if p.fragment != fragmentLater {
		if why := d.transport(p); why != counted {
			return why
		}
	}
	p.payloadAt = d.pos
	p.payload = d.end - d.pos
	return counted
}

func (d *dissector) ipv4(p *parsed) reason {
	const headerMin = 20
	b, ok := d.take(headerMin)
	if !ok {
		return reasonTruncated
	}
	header := int(b[0]&0xf) * 4
	if b[0]>>4 != 4 || header < headerMin {
		return reasonMalformed
	}
	total := int(binary.BigEndian.Uint16(b[2:]))
	if total == 0 && d.gso { // BIG TCP: too long for the field
		total = d.end - p.ipAt
	}
	if total < header || p.ipAt+total > d.end {
		return reasonMalformed
	}
	p.Src[10], p.Src[11] = 0xff, 0xff // ::ffff:a.b.c.d
	copy(p.Src[12:], b[12:16])
	p.Dst[10], p.Dst[11] = 0xff, 0xff
	copy(p.Dst[12:], b[16:20])
	p.tos, p.ttl, p.Proto = b[1], b[8], b[9]
	p.bytes = total

	offset := binary.BigEndian.Uint16(b[6:])
	p.fragmentID = uint32(binary.BigEndian.Uint16(b[4:]))
	p.fragmentProto = p.Proto
	switch {
	case offset&0x1fff != 0:
		p.fragment = fragmentLater
	case offset&0x2000 != 0:
		p.fragment = fragmentFirst
	}
	d.end = p.ipAt + total
	d.pos = p.ipAt + header
	return counted
}

func (d *dissector) ipv6(p *parsed) reason {
	const header = 40
	b, ok := d.take(header)
	if !ok {
		return reasonTruncated
	}
	word := binary.BigEndian.Uint32(b)
	if word>>28 != 6 {
		return reasonMalformed
	}
	payload := int(binary.BigEndian.Uint16(b[4:]))
	total := header + payload
	if payload == 0 && (d.gso || b[6] == ipv6.HopByHop) { // jumbogram (RFC 2675) or BIG TCP
		total = d.end - p.ipAt
	}
	if p.ipAt+total > d.end {
		return reasonMalformed
	}
	copy(p.Src[:], b[8:])
	copy(p.Dst[:], b[24:])
	p.IPv6 = true
	p.flowLabel = word & 0xfffff
	p.tos, p.ttl, p.Proto = uint8(word>>20), b[7], b[6]
	p.bytes = total
	d.end = p.ipAt + total
	return counted
}

// extensions walks the extension headers up to the transport header, or up to
// a later fragment, behind which there is none.
func (d *dissector) extensions(p *parsed) reason {
	const start = 8 // bytes that every extension header has
	for n := 0; p.fragment != fragmentLater && isExtension(p.Proto, p.IPv6); n++ {
		if n == extHeaderMax {
			return reasonExtChain
		}
		b, ok := d.take(start)
		if !ok {
			return d.missing(start)
		}
		e, _ := ipv6.ParseExtension(p.Proto, b) // b is long enough
		if p.Proto == ipv6.Fragment {
			p.fragmentID = e.FragmentID
			switch {
			case e.FragmentOffset != 0:
				p.fragment = fragmentLater
			case e.MoreFragments:
				p.fragment = fragmentFirst
			}
		}
		if d.pos+e.Size-start > d.end {
			return reasonMalformed
		}
		d.pos += e.Size - start // if not captured, whatever is next finds out
		p.Proto = e.Next
	}
	return counted
}

package capfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Types of blocks.
const (
	blockInterface  = 1
	blockPacket     = 2 // obsolete
	blockSimple     = 3
	blockStatistics = 5
	blockEnhanced   = 6
	blockSection    = 0x0a0d0d0a
)

const byteOrderMagic = 0x1a2b3c4d

// pcapng reads the newer format: sections of blocks, some of which have frames.
type pcapng struct {
	*Reader
	order  binary.ByteOrder
	skip   bool // the section is of a version that is not known
	first  int  // number of the section's first interface
	ifaces []ngIface
}

// ngIface is an interface of a section.
type ngIface struct {
	link   LinkType
	snap   uint32
	unit   uint64 // parts of a second that times count
	offset int64  // seconds that they begin with
}

// errBlock is of a block that lacks what it must have.
var errBlock = errors.New("a block is too short for what it is")

// header reads the first section's.
func (p *pcapng) header() error {
	_, _, err := p.block()
	return err
}

// block returns the next block of a type that matters, without what frames it. Sections are begun here.
func (p *pcapng) block() (kind uint32, body []byte, err error) {
	for {
		kind, length, err := p.blockHeader()
		if err != nil {
			return 0, nil, err
		}
		switch {
		case kind == blockSection:
			p.skip = false
		case p.skip || kind == blockStatistics || kind > blockEnhanced:
			if _, err := p.buf.Discard(length); err != nil {
				return 0, nil, cut(err)
			}
			continue
		}
		b, err := p.body(length)
		if err == nil && kind == blockSection {
			return kind, nil, p.section(b)
		}
		return kind, b, err
	}
}

const blockMin = 12 // type, length, and the length again at the end

// blockHeader looks at the next block.
func (p *pcapng) blockHeader() (kind uint32, length int, err error) {
	h, err := p.buf.Peek(blockMin)
	if len(h) < blockMin {
		if len(h) > 0 {
			err = cut(err)
		}
		return 0, 0, err
	}
	if binary.LittleEndian.Uint32(h) == blockSection { // the same in both orders
		if p.order = orderOf(h[8:]); p.order == nil {
			return 0, 0, fmt.Errorf("a section does not say in which order its bytes are, but % x", h[8:12])
		}
	}
	length = size(p.order.Uint32(h[4:]))
	if length < blockMin || length%4 != 0 {
		return 0, 0, fmt.Errorf("a block has a length of %d bytes", length)
	}
	return p.order.Uint32(h), length, nil
}

// body reads a block, and returns what is in it.
func (p *pcapng) body(length int) ([]byte, error) {
	const most = 16 << 20 // as other tools
	if length > most {
		return nil, fmt.Errorf("a block has a length of %d bytes, at most %d are read", length, most)
	}
	b, err := p.read(length)
	if err != nil {
		return nil, cut(err)
	}
	if again := size(p.order.Uint32(b[length-4:])); again != length {
		return nil, fmt.Errorf("a block has a length of %d bytes at its beginning, and of %d at its end", length, again)
	}
	return b[8 : length-4], nil
}

func orderOf(magic []byte) binary.ByteOrder {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if order.Uint32(magic) == byteOrderMagic {
			return order
		}
	}
	return nil
}

// section begins one: its interfaces count from 0.
func (p *pcapng) section(b []byte) error {
	if len(b) < 16 { // magic, version (2, 2), length
		return errBlock
	}
	p.skip = p.order.Uint16(b[4:]) != 1
	p.first += len(p.ifaces)
	p.ifaces = p.ifaces[:0]
	return nil
}

func (p *pcapng) next() (Frame, error) {
	for {
		kind, b, err := p.block()
		if err != nil {
			return Frame{}, err
		}
		switch kind {
		case blockInterface:
			err = p.iface(b)
		case blockEnhanced, blockPacket:
			return p.packet(kind, b)
		case blockSimple:
			return p.simple(b)
		}
		if err != nil {
			return Frame{}, err
		}
	}
}

// Options of an interface and of a packet.
const (
	optEnd      = 0
	optName     = 2
	optUnit     = 9
	optOffset   = 14
	optFlags    = 2
	optHeader   = 4
	flagWay     = 3
	flagInbound = 1
)

// options calls f for each option.
func (p *pcapng) options(b []byte, f func(code uint16, value []byte) error) error {
	for len(b) >= optHeader {
		code, n := p.order.Uint16(b), int(p.order.Uint16(b[2:]))
		if code == optEnd {
			return nil
		}
		padded := optHeader + (n+3)&^3
		if padded > len(b) {
			return errBlock
		}
		if err := f(code, b[optHeader:optHeader+n]); err != nil {
			return err
		}
		b = b[padded:]
	}
	return nil
}

func (p *pcapng) iface(b []byte) error {
	if len(b) < 8 { // link type (2), reserved (2), snap length
		return errBlock
	}
	if n := len(p.names); n >= maxIface {
		return fmt.Errorf("interface %d: a file may have %d", n, maxIface)
	}
	i := ngIface{link: LinkType(p.order.Uint16(b)), snap: p.order.Uint32(b[4:]), unit: 1e6}
	name := ""
	err := p.options(b[8:], func(code uint16, value []byte) (err error) {
		switch {
		case code == optName:
			name = string(value)
		case code == optUnit && len(value) > 0:
			i.unit, err = unitOf(value[0])
		case code == optOffset && len(value) >= 8:
			i.offset = int64(p.order.Uint64(value))
		}
		return err
	})
	p.ifaces, p.names = append(p.ifaces, i), append(p.names, name)
	return err
}

// unitOf decodes the resolution of times: a power of ten, or of two if the upper bit is set.
func unitOf(b byte) (uint64, error) {
	base, n := 10, int(b)
	if b&0x80 != 0 {
		base, n = 2, int(b&0x7f)
	}
	u := math.Pow(float64(base), float64(n))
	if u > math.MaxInt64 {
		return 0, fmt.Errorf("times in %d^-%d seconds are not read", base, n)
	}
	return uint64(u), nil
}

func (i *ngIface) time(high, low uint32) time.Time {
	t := uint64(high)<<32 | uint64(low)
	h, l := bits.Mul64(t%i.unit, uint64(time.Second))
	ns, _ := bits.Div64(h, l, i.unit)
	return time.Unix(int64(t/i.unit)+i.offset, int64(ns)).UTC()
}

func (p *pcapng) packet(kind uint32, b []byte) (Frame, error) {
	const header = 20 // interface, time (4, 4), captured, length
	if len(b) < header {
		return Frame{}, errBlock
	}
	n := size(p.order.Uint32(b))
	if kind == blockPacket {
		n = int(p.order.Uint16(b)) // the other half counts lost packets
	}
	if n >= len(p.ifaces) {
		return Frame{}, fmt.Errorf("a frame is of interface %d, but the section has %d interfaces", n, len(p.ifaces))
	}
	i := &p.ifaces[n]
	captured, length := size(p.order.Uint32(b[12:])), size(p.order.Uint32(b[16:]))
	if captured > len(b)-header {
		return Frame{}, errBlock
	}
	data := b[header : header+captured]
	f := Frame{
		Time: i.time(p.order.Uint32(b[4:]), p.order.Uint32(b[8:])), Link: i.link, Data: data[:captured:captured],
		Length: max(length, captured), Iface: p.first + n,
	}
	options := b[min(header+(captured+3)&^3, len(b)):]
	return f, p.options(options, func(code uint16, value []byte) error {
		if code == optFlags && len(value) >= 4 {
			f.Direction = directions[p.order.Uint32(value)&flagWay]
		}
		return nil
	})
}

// directions are those of the flags of a packet.
var directions = [...]Direction{Unknown, flagInbound: Inbound, 2: Outbound, 3: Unknown}

// simple is a frame without time, of the first interface.
func (p *pcapng) simple(b []byte) (Frame, error) {
	if len(p.ifaces) == 0 {
		return Frame{}, errors.New("a frame is of no interface: the section has none")
	}
	if len(b) < 4 { // length
		return Frame{}, errBlock
	}
	length := size(p.order.Uint32(b))
	captured := length
	if snap := size(p.ifaces[0].snap); snap > 0 {
		captured = min(captured, snap)
	}
	if captured > len(b)-4 {
		return Frame{}, errBlock
	}
	return Frame{Link: p.ifaces[0].link, Data: b[4 : 4+captured : 4+captured], Length: length, Iface: p.first}, nil
}

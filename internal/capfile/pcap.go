package capfile

import (
	"encoding/binary"
	"fmt"
	"time"
)

// pcap reads the older format: a header, then frames of one interface.
type pcap struct {
	*Reader
	order binary.ByteOrder
	unit  time.Duration // of the fraction of a second
	link  LinkType
	snap  uint32
}

// pcapMagic is what the first bytes of a file say of the others; no order: this is no such file.
func pcapMagic(magic []byte) (order binary.ByteOrder, unit time.Duration) {
	switch string(magic) {
	case "\xa1\xb2\xc3\xd4":
		return binary.BigEndian, time.Microsecond
	case "\xd4\xc3\xb2\xa1":
		return binary.LittleEndian, time.Microsecond
	case "\xa1\xb2\x3c\x4d":
		return binary.BigEndian, time.Nanosecond
	case "\x4d\x3c\xb2\xa1":
		return binary.LittleEndian, time.Nanosecond
	}
	return nil, 0
}

func (p *pcap) header() error {
	h, err := p.read(24) // magic, version (2, 2), time zone, accuracy, snap length, link type
	if err != nil {
		return err
	}
	if major := p.order.Uint16(h[4:]); major != 2 {
		return fmt.Errorf("version %d of pcap is not known, only 2", major)
	}
	p.snap, p.link = p.order.Uint32(h[16:]), LinkType(p.order.Uint32(h[20:])) // the upper half is about checksums
	return nil
}

func (p *pcap) next() (Frame, error) {
	h, err := p.read(16) // seconds, fraction, captured, length
	if err != nil {
		return Frame{}, err
	}
	seconds, fraction := p.order.Uint32(h), p.order.Uint32(h[4:])
	captured, length := p.order.Uint32(h[8:]), p.order.Uint32(h[12:])
	// Some writers do not keep to the length that they announce.
	const snapMin = 256 << 10
	if captured > max(p.snap, snapMin) {
		return Frame{}, fmt.Errorf("%d bytes were captured, but the file has at most %d of a frame", captured, p.snap)
	}
	if captured > length {
		return Frame{}, fmt.Errorf("%d bytes were captured of a frame of %d", captured, length)
	}
	data, err := p.read(size(captured))
	at := time.Unix(int64(seconds), int64(fraction)*int64(p.unit)).UTC()
	return Frame{Time: at, Link: p.link, Data: data, Length: size(length)}, cut(err)
}

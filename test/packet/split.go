package packet

import (
	"encoding/binary"
	"slices"
)

// Split cuts the packet into IP fragments that carry at most size bytes each,
// a multiple of 8, and returns their frames in order. An IPv6 packet needs a
// Fragment header, whose id all fragments take; of an IPv4 packet the outermost
// header is repeated, with id.
func (b Builder) Split(size int, id uint32) [][]byte {
	for i, l := range b.layers {
		switch l.spec {
		case fragment:
			return b.split(i, size, func(head []byte, offset int, more bool) {
				putFragment6(head, offset, more, binary.BigEndian.Uint32(head[4:]))
			})
		case ipv4:
			return b.split(i, size, func(head []byte, offset int, more bool) {
				putFragment4(head, offset, more, uint16(id))
			})
		}
	}
	panic("packet: split: no IPv4 and no Fragment header")
}

// split repeats the layers up to number last and cuts what follows; set makes
// the header of that layer one of a fragment.
func (b Builder) split(last, size int, set func(head []byte, offset int, more bool)) [][]byte {
	var before int
	for _, l := range b.layers[:last+1] {
		before += len(l.head)
	}
	whole := b.Bytes()[before:]
	next := b.layers[last].nameOf(b.nextSpec(last))

	var frames [][]byte
	for offset := 0; offset < len(whole); offset += size {
		end := min(offset+size, len(whole))
		f := Builder{layers: slices.Clone(b.layers[:last+1])}
		f = f.change("", func(l *layer) { set(l.head, offset, end < len(whole)) })
		frames = append(frames, f.NextHeader(uint8(next)).Raw(whole[offset:end]).Bytes())
	}
	return frames
}

// Burst is a frame that stands for several segments, and the segments.
type Burst struct {
	Frame       Frame
	Segments    [][]byte
	TransportAt int  // of the innermost transport header
	TCP         bool // what it is
}

// Burst cuts the payload, which must be the last layer, into segments of size
// bytes as the kernel does: each has all headers, with lengths of its own.
func (b Builder) Burst(size int) Burst {
	last := len(b.layers) - 1
	if last < 1 || b.layers[last].spec != payload {
		panic("packet: burst: there is no payload")
	}
	var segments [][]byte
	for piece := range slices.Chunk(b.layers[last].head, size) {
		segments = append(segments, Builder{layers: b.layers[:last]}.Raw(piece).Bytes())
	}
	transport := b.layers[last-1]
	data := b.Bytes()
	return Burst{
		Frame:       Frame{Data: data, GSO: GSO{uint16(len(segments)), uint16(size)}},
		Segments:    segments,
		TransportAt: len(data) - len(b.layers[last].head) - len(transport.head),
		TCP:         transport.spec == tcp,
	}
}

func (b Builder) nextSpec(i int) *spec {
	if i+1 < len(b.layers) {
		return b.layers[i+1].spec
	}
	return nil
}

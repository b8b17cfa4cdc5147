package agent

import "math"

// amounts are what the probe counted in one direction of an interface, in flows
// or by reason.
type amounts struct {
	frames, packets       uint64 // a burst is one frame, or its segments
	frameBytes, wireBytes uint64 // likewise
	slack                 uint64 // bytes that an interface may count, or not
	link                  uint64 // bytes of a frame's link header
}

// Headers of two packets differ in length at most so many times.
const headersDiffer = 4

// coverage compares with the interface's own counters: 1 when they can be
// equal, else the ratio of packets or of bytes that is further from 1.
//
// An interface counts a burst as one frame or as its segments, depending on its
// offloads. Which of them shows in the packets, and then the bytes have to be
// those of frames or of segments. Only where it counted some bursts so and
// others so, the bytes may be anything between. And some virtual interfaces do
// not count the link header (lo, a bridge's ingress, veth with GRO).
func (a amounts) coverage(packets, bytes span) float64 {
	byPackets := span{a.frames, a.packets}.ratio(packets)
	want := a.bytes(packets)
	byBytes := want.ratio(bytes)
	bare := span{since(want.low, a.link*packets.high), since(want.high, a.link*packets.low)}
	if bare.ratio(bytes) == 1 {
		byBytes = 1
	}
	if math.Abs(byBytes-1) > math.Abs(byPackets-1) {
		return byBytes
	}
	return byPackets
}

// bytes are those that an interface with so many packets has.
func (a amounts) bytes(packets span) span {
	more, headers := float64(a.packets-a.frames), a.wireBytes-a.frameBytes
	all := span{a.frameBytes, a.wireBytes + a.slack}
	if more == 0 {
		return all
	}
	// The part of the segments beyond the first of a burst that was counted.
	low := float64(since(packets.low, a.frames)) / more
	high := float64(since(packets.high, a.frames)) / more
	part := func(share float64) uint64 {
		return uint64(math.Ceil(min(1, headersDiffer*share) * float64(headers)))
	}
	switch {
	case low == 0 && high < 1:
		return span{all.low, a.frameBytes + part(high) + a.slack}
	case low > 0 && high >= 1:
		return span{a.wireBytes - part(max(0, 1-low)) - min(a.slack, a.frameBytes), all.high}
	}
	return all
}

// span is a number that is only known to lie in a range.
type span struct{ low, high uint64 }

// ratio is a over b: 1 when they may be equal.
func (a span) ratio(b span) float64 {
	switch {
	case a.low > b.high && b.high > 0:
		return float64(a.low) / float64(b.high)
	case a.high < b.low:
		return float64(a.high) / float64(b.low)
	}
	return 1
}

// since is a − b, and 0 where a driver has set its counters back.
func since(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}

package flow

import (
	"math/bits"
	"unsafe"
)

// Counters are what is summed of a flow, whatever it is merged with. A new one is a
// line here and a row of counterFields; everything else is a loop over words.
type Counters struct {
	Packets      uint64 `json:"packets"`
	Bytes        uint64 `json:"bytes"`         // IP bytes including headers
	PayloadBytes uint64 `json:"payload_bytes"` // bytes above the transport header
	WireBytes    uint64 `json:"wire_bytes"`    // IP bytes, link header, padding and tunnel headers
	Fragments    uint64 `json:"fragments"`     // packets that are IP fragments
	CEPackets    uint64 `json:"ce_packets"`    // packets marked congestion experienced (ECN)
}

// counters is how many there are. A field of another type than uint64 would be
// split into words: TestCounters refuses it.
const counters = int(unsafe.Sizeof(Counters{}) / unsafe.Sizeof(uint64(0)))

// words are the counters as an array, which costs nothing.
func (c *Counters) words() *[counters]uint64 { return (*[counters]uint64)(unsafe.Pointer(c)) }

// Add adds what was counted elsewhere.
func (c *Counters) Add(o *Counters) {
	to, from := c.words(), o.words()
	for i := range to {
		to[i] += from[i]
	}
}

// Subtract is the inverse of Add.
func (c *Counters) Subtract(o *Counters) {
	to, from := c.words(), o.words()
	for i := range to {
		to[i] -= from[i]
	}
}

// Share is what so many of the packets have of every counter, rounded down.
func (c *Counters) Share(packets uint64) Counters {
	if packets >= c.Packets {
		return *c
	}
	var share Counters
	to, from := share.words(), c.words()
	for i := range to {
		to[i] = portion(from[i], packets, c.Packets)
	}
	return share
}

// portion is n × part / whole, where part is less than whole.
func portion(n, part, whole uint64) uint64 {
	high, low := bits.Mul64(n, part)
	quotient, _ := bits.Div64(high, low, whole)
	return quotient
}

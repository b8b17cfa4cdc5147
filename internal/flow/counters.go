package flow

import (
	"math"
	"math/bits"
	"slices"
	"strings"
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
	Dropped      uint64 `json:"dropped"`       // packets that rules of the gate dropped
	DroppedBytes uint64 `json:"dropped_bytes"` // of Bytes, those of dropped packets
	Forwarded    uint64 `json:"forwarded"`     // packets that XDP forwarded, past the kernel's stack
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

// Scale multiplies all by a rate, as where one packet in so many was counted.
func (c *Counters) Scale(rate float64) {
	if rate <= 1 {
		return
	}
	for i, n := range c.words() {
		c.words()[i] = uint64(math.Round(min(float64(n)*rate, math.MaxInt64)))
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
		to[i] = Portion(from[i], packets, c.Packets)
	}
	return share
}

// Portion is n × part / whole, where part is less than whole.
func Portion(n, part, whole uint64) uint64 {
	high, low := bits.Mul64(n, part)
	quotient, _ := bits.Div64(high, low, whole)
	return quotient
}

// counterFields are those that every record has.
var counterFields = []Field{
	counter(Field{
		Name: "packets", Unit: "packets", Doc: "packets on the wire: segments, not offload bursts",
		IPFIX: []Element{IANA(2, "packetDeltaCount", "unsigned64", "deltaCounter", "packets on the wire")},
	}, func(c *Counters) *uint64 { return &c.Packets }),
	counter(Field{
		Name: "bytes", Unit: "bytes", Doc: "IP bytes, headers included",
		IPFIX: []Element{IANA(1, "octetDeltaCount", "unsigned64", "deltaCounter", "IP bytes, headers included")},
	}, func(c *Counters) *uint64 { return &c.Bytes }),
	counter(Field{
		Name: "wire_bytes", Unit: "bytes", Doc: "IP bytes, link header, padding and tunnel headers",
		IPFIX: []Element{IANA(352, "layer2OctetDeltaCount", "unsigned64", "deltaCounter", "IP bytes, link header, padding and tunnel headers")},
	}, func(c *Counters) *uint64 { return &c.WireBytes }),
}

// rareCounterFields are those that are 0 in most records, and absent then.
var rareCounterFields = []Field{
	absentZero(counter(Field{
		Name: "payload_bytes", Unit: "bytes", Doc: "bytes above the transport header; absent: none",
		IPFIX: []Element{IANA(401, "transportOctetDeltaCount", "unsigned64", "deltaCounter", "bytes above the transport header")},
	}, func(c *Counters) *uint64 { return &c.PayloadBytes })),
	absentZero(counter(Field{
		Name: "fragments", Unit: "packets", Doc: "packets that are IP fragments; absent: none",
		IPFIX: []Element{own(3, "waymarkFragmentDeltaCount", "unsigned64", "deltaCounter", "packets that are IP fragments")},
	}, func(c *Counters) *uint64 { return &c.Fragments })),
	absentZero(counter(Field{
		Name: "ce_packets", Unit: "packets", Doc: "packets marked congestion experienced (RFC 3168); absent: none",
		IPFIX: []Element{own(4, "waymarkCEPacketDeltaCount", "unsigned64", "deltaCounter", "packets marked congestion experienced")},
	}, func(c *Counters) *uint64 { return &c.CEPackets })),
	absentZero(counter(Field{
		Name: "forwarded", Unit: "packets", Doc: "packets, among `packets`, that were forwarded at XDP, past the kernel's stack; absent: none", Example: "forwarded > 0",
	}, func(c *Counters) *uint64 { return &c.Forwarded })),
}

// CounterFields are the fields of Counters.
var CounterFields = slices.Concat(counterFields, rareCounterFields, dropCounterFields)

// MetricName is what Prometheus calls the sum of a counter over flows. A sum that
// may decrease is a gauge.
func (f *Field) MetricName() string {
	name := "waymark_" + strings.ReplaceAll(f.Name, ".", "_")
	if f.Kind == Signed {
		return name
	}
	return name + "_total"
}

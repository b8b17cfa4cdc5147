package decode

import (
	"math"
	"time"
)

// setter takes the value of a field.
type setter func(r *record, v []byte)

// setterOf is that of an element; nil: it is of no use here.
func setterOf(enterprise, id uint32) setter {
	switch enterprise {
	case 0:
		if set, ok := elements[id]; ok {
			return set
		}
		if set, ok := counted[id]; ok {
			return func(r *record, v []byte) { set(&r.forward, v) }
		}
	case reversePEN:
		if set, ok := counted[id]; ok {
			return func(r *record, v []byte) { set(&r.reverse, v) }
		}
	}
	return nil
}

// number is an unsigned integer of up to 8 bytes; of more, the last ones.
func number(v []byte) (n uint64) {
	for _, b := range v {
		n = n<<8 | uint64(b)
	}
	return n
}

// float is float32 or float64.
func float(v []byte) float64 {
	switch len(v) {
	case 4:
		return float64(math.Float32frombits(be.Uint32(v)))
	case 8:
		return math.Float64frombits(be.Uint64(v))
	}
	return 0
}

// elements of the registry of IANA, which NetFlow 9 shares up to 127, without those of a direction.
var elements = map[uint32]setter{
	4:  func(r *record, v []byte) { r.key.Proto = uint8(number(v)) },
	7:  func(r *record, v []byte) { r.key.SrcPort = uint16(number(v)) },
	11: func(r *record, v []byte) { r.key.DstPort = uint16(number(v)) },
	8:  func(r *record, v []byte) { r.has4 = setAddress(&r.v4[0], v, 4) || r.has4 },
	12: func(r *record, v []byte) { r.has4 = setAddress(&r.v4[1], v, 4) || r.has4 },
	27: func(r *record, v []byte) { r.has6 = setAddress(&r.v6[0], v, 16) || r.has6 },
	28: func(r *record, v []byte) { r.has6 = setAddress(&r.v6[1], v, 16) || r.has6 },
	10: func(r *record, v []byte) { r.in = uint32(number(v)) },
	14: func(r *record, v []byte) { r.out = uint32(number(v)) },
	58: func(r *record, v []byte) { r.key.VLAN = uint16(number(v)) & 0xfff },
	60: func(r *record, v []byte) { r.version = uint8(number(v)) },
	61: func(r *record, v []byte) { r.egress = number(v) == 1 },

	243: func(r *record, v []byte) { r.key.VLAN = uint16(number(v)) & 0xfff },
	245: func(r *record, v []byte) { r.key.InnerVLAN = uint16(number(v)) & 0xfff },

	// Of firewalls: what both ends sent.
	231: func(r *record, v []byte) { counted[1](&r.forward, v) },
	298: func(r *record, v []byte) { counted[2](&r.forward, v) },
	232: func(r *record, v []byte) { counted[1](&r.reverse, v) },
	299: func(r *record, v []byte) { counted[2](&r.reverse, v) },

	// Options.
	48:            func(r *record, v []byte) { r.sampler = number(v) },
	302:           func(r *record, v []byte) { r.sampler = number(v) },
	34:            func(r *record, v []byte) { r.sampling.every = float64(number(v)) },
	50:            func(r *record, v []byte) { r.sampling.every = float64(number(v)) },
	305:           func(r *record, v []byte) { r.sampling.taken = float64(number(v)) },
	306:           func(r *record, v []byte) { r.sampling.passed = float64(number(v)) },
	309:           func(r *record, v []byte) { r.sampling.size = float64(number(v)) },
	310:           func(r *record, v []byte) { r.sampling.population = float64(number(v)) },
	311:           func(r *record, v []byte) { r.sampling.probability = float(v) },
	82:            func(r *record, v []byte) { r.text[0] = string(v) },
	83:            func(r *record, v []byte) { r.text[1] = string(v) },
	160:           func(r *record, v []byte) { r.boot = int64(number(v)) },
	scopeOfV9 | 2: func(r *record, v []byte) { r.in = uint32(number(v)) },
}

func setAddress(to *[16]byte, v []byte, n int) bool {
	if len(v) != n {
		return false
	}
	if n == 4 {
		*to = v4(v)
	} else {
		copy(to[:], v)
	}
	return true
}

// counted are those that a flow has in each direction.
var counted = map[uint32]func(h *half, v []byte){
	1:   func(h *half, v []byte) { h.Bytes, h.counted = number(v), true },
	2:   func(h *half, v []byte) { h.Packets, h.counted = number(v), true },
	23:  func(h *half, v []byte) { h.ifNone(&h.Bytes, v) },
	24:  func(h *half, v []byte) { h.ifNone(&h.Packets, v) },
	352: func(h *half, v []byte) { h.WireBytes = number(v) },
	401: func(h *half, v []byte) { h.PayloadBytes = number(v) },
	5:   func(h *half, v []byte) { h.tos = uint8(number(v)) },
	6:   func(h *half, v []byte) { h.flags |= uint16(number(v)) & 0xfff },
	31:  func(h *half, v []byte) { h.flowLabel = uint32(number(v)) & 0xfffff },
	52:  func(h *half, v []byte) { h.ttlMin = uint8(number(v)) },
	53:  func(h *half, v []byte) { h.ttlMax = uint8(number(v)) },
	192: func(h *half, v []byte) { h.ttlMin, h.ttlMax = uint8(number(v)), uint8(number(v)) },

	32:  func(h *half, v []byte) { h.icmp, h.hasICMP = uint16(number(v)), true },
	139: func(h *half, v []byte) { h.icmp, h.hasICMP = uint16(number(v)), true },
	176: func(h *half, v []byte) { h.icmp, h.hasICMP = uint16(number(v))<<8|h.icmp&0xff, true },
	178: func(h *half, v []byte) { h.icmp, h.hasICMP = uint16(number(v))<<8|h.icmp&0xff, true },
	177: func(h *half, v []byte) { h.icmp, h.hasICMP = uint16(number(v))&0xff|h.icmp&0xff00, true },
	179: func(h *half, v []byte) { h.icmp, h.hasICMP = uint16(number(v))&0xff|h.icmp&0xff00, true },

	// Of several units the finest stays.
	150: func(h *half, v []byte) { h.first.set(whole(number(v), time.Second), 255) },
	151: func(h *half, v []byte) { h.last.set(whole(number(v), time.Second), 255) },
	152: func(h *half, v []byte) { h.first.set(whole(number(v), time.Millisecond), 1) },
	153: func(h *half, v []byte) { h.last.set(whole(number(v), time.Millisecond), 1) },
	154: func(h *half, v []byte) { h.first.set(ntp(v), 0) },
	155: func(h *half, v []byte) { h.last.set(ntp(v), 0) },
	156: func(h *half, v []byte) { h.first.set(ntp(v), 0) },
	157: func(h *half, v []byte) { h.last.set(ntp(v), 0) },
	158: func(h *half, v []byte) { h.first.before(v) },
	159: func(h *half, v []byte) { h.last.before(v) },
	22:  func(h *half, v []byte) { h.first.up(v) },
	21:  func(h *half, v []byte) { h.last.up(v) },
}

// ifNone sets a counter of packets that left, which some devices have instead of the one of those that came.
func (h *half) ifNone(n *uint64, v []byte) {
	if *n == 0 {
		*n = number(v)
	}
	h.counted = true
}

// Times that are relative are made absolute by the header, later.
const (
	relativeExport = 254 // at: µs before the export
	relativeUptime = 253 // at: ms after the start
)

// set takes a time, unless a finer one is known. What is no time of these centuries is left out.
func (m *moment) set(at int64, spread uint8) {
	if at > 0 && (m.at == 0 || spread <= m.spread) {
		*m = moment{at, spread}
	}
}

func (m *moment) before(v []byte) {
	if m.at == 0 {
		*m = moment{int64(uint32(number(v))) + 1, relativeExport}
	}
}

func (m *moment) up(v []byte) {
	if m.at == 0 {
		*m = moment{int64(uint32(number(v))) + 1, relativeUptime}
	}
}

// absolute is the time by the header.
func (m *moment) absolute(h *Header, boot int64) {
	switch m.spread {
	case relativeExport:
		*m = moment{h.Exported.UnixNano() - (m.at-1)*1000, 0}
	case relativeUptime:
		switch {
		case h.HasUptime:
			*m = h.uptimeTime(uint32(m.at - 1))
		case boot != 0:
			*m = moment{(boot + m.at - 1) * int64(time.Millisecond), 1}
		default:
			*m = moment{}
		}
	}
}

// latest is the last time that is one: 2200.
const latest = 7_258_118_400

func whole(n uint64, unit time.Duration) int64 {
	if n > latest*uint64(time.Second/unit) {
		return 0
	}
	return int64(n) * int64(unit)
}

// ntp is a time of seconds since 1900, and a binary fraction.
func ntp(v []byte) int64 {
	const unixEpoch = 2208988800 // in seconds since 1900
	if len(v) != 8 {
		return 0
	}
	seconds, fraction := int64(be.Uint32(v)), uint64(be.Uint32(v[4:]))
	if seconds < unixEpoch { // after 2036 they begin again
		seconds += 1 << 32
	}
	return (seconds-unixEpoch)*int64(time.Second) + int64(fraction*uint64(time.Second)>>32)
}

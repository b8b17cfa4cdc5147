package flow

import "unsafe"

// kept is what the table keeps of Counts, in little more than half the memory. Frames are for
// coverage, which has counted them by then; what few flows have is allocated only for them.
type kept struct {
	counters       [common]uint64
	first, last    int64
	rtt            RTT
	rare           *rare // nil: all of it is zero
	flowLabel, vni uint32
	tcpFlags       uint16
	tos            uint8
	ttlMin, ttlMax uint8
	firstSpread    uint8
	opening        Opening
}

// common is how many counters, the first ones, are those of any packet.
const common = int(unsafe.Offsetof(Counters{}.Fragments) / unsafe.Sizeof(uint64(0)))

// rare is the rest of Counts.
type rare struct {
	counters [counters - common]uint64
	other    Iface
	drop     *Drop
	pdm      *PDM
	ioam     *IOAM
}

func (k *kept) packets() uint64 { return k.counters[0] }

func (k *kept) reported() bool { return k.rare != nil && (k.rare.pdm != nil || k.rare.ioam != nil) }

// forget drops what is not in the table's own memory.
func (k *kept) forget() { k.rare = nil }

// into gives the counts back.
func (k *kept) into(c *Counts) {
	*c = Counts{
		First: k.first, Last: k.last, FlowLabel: k.flowLabel, VNI: k.vni, TCPFlags: k.tcpFlags, TOS: k.tos,
		TTLMin: k.ttlMin, TTLMax: k.ttlMax, FirstSpread: k.firstSpread, Opening: k.opening, RTT: k.rtt,
	}
	words := c.words()
	copy(words[:common], k.counters[:])
	if r := k.rare; r != nil {
		copy(words[common:], r.counters[:])
		c.Other, c.Drop, c.PDM, c.IOAM = r.other, r.drop, r.pdm, r.ioam
	}
}

// set takes counts, and what options reported with them.
func (k *kept) set(c *Counts) {
	words := c.words()
	k.counters = [common]uint64(words[:])
	k.first, k.last, k.flowLabel, k.vni, k.tcpFlags, k.tos = c.First, c.Last, c.FlowLabel, c.VNI, c.TCPFlags, c.TOS
	k.ttlMin, k.ttlMax, k.firstSpread, k.opening, k.rtt = c.TTLMin, c.TTLMax, c.FirstSpread, c.Opening, c.RTT
	r := rare{[counters - common]uint64(words[common:]), c.Other, c.Drop, c.PDM, c.IOAM}
	switch {
	case r == rare{}:
		k.rare = nil
	case k.rare == nil:
		k.rare = &rare{r.counters, r.other, r.drop, r.pdm, r.ioam}
	default:
		*k.rare = r
	}
}

// add adds what was counted of the same flow.
func (k *kept) add(d *Counts) {
	var c Counts
	k.into(&c)
	c.Add(d)
	k.set(&c)
}

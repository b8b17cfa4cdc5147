package store

import (
	"encoding/binary"
	"unsafe"

	"github.com/waymark-net/waymark/internal/flow"
)

// rowBytes is the least that a row takes as bytes: no number takes less than one.
const rowBytes = 32 + int(unsafe.Sizeof(flow.Counters{}))/8 + 22

// numbers are those of a row, all but its addresses and counters, as they are written.
func (w *row) numbers() [22]uint64 {
	return [...]uint64{
		uint64(w.first), uint64(w.last - w.first), uint64(w.rttResponder), uint64(w.rttInitiator),
		uint64(w.link), uint64(w.vni), uint64(w.flowLabel), uint64(w.reported),
		uint64(w.sport), uint64(w.dport), uint64(w.vlan), uint64(w.innerVLAN), uint64(w.tcpFlags),
		uint64(w.proto), uint64(w.tos), uint64(w.ttlMin), uint64(w.ttlMax),
		uint64(w.direction) | uint64(w.tunnel)<<8 | uint64(w.endReason)<<16,
		uint64(w.initiator), uint64(w.initiatorBy), uint64(w.family)<<1 | boolean(w.unattributed), uint64(w.drop),
	}
}

func (w *row) append(b []byte) []byte {
	b = append(append(b, w.src[:]...), w.dst[:]...)
	for _, f := range flow.CounterFields {
		b = binary.AppendUvarint(b, *f.Counter(&w.Counters))
	}
	for _, n := range w.numbers() {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func (r *reader) row(w *row) {
	copy(w.src[:], (*r)[:16])
	copy(w.dst[:], (*r)[16:32])
	*r = (*r)[32:]
	for _, f := range flow.CounterFields {
		*f.Counter(&w.Counters) = r.uvarint()
	}
	var n [22]uint64
	for i := range n {
		n[i] = r.uvarint()
	}
	w.first, w.last = int64(n[0]), int64(n[1]+n[0])
	w.rttResponder, w.rttInitiator = int64(n[2]), int64(n[3])
	w.link, w.vni, w.flowLabel, w.reported = uint32(n[4]), uint32(n[5]), uint32(n[6]), uint32(n[7])
	w.sport, w.dport, w.vlan, w.innerVLAN, w.tcpFlags = uint16(n[8]), uint16(n[9]), uint16(n[10]), uint16(n[11]), uint16(n[12])
	w.proto, w.tos, w.ttlMin, w.ttlMax = uint8(n[13]), uint8(n[14]), uint8(n[15]), uint8(n[16])
	w.direction, w.tunnel, w.endReason = flow.Direction(n[17]), flow.Tunnel(n[17]>>8), flow.EndReason(n[17]>>16)
	w.initiator, w.initiatorBy = flow.Initiator(n[18]), flow.Evidence(n[19])
	w.family, w.unattributed = uint8(n[20]>>1), n[20]&1 != 0
	w.drop = uint32(n[21])
}

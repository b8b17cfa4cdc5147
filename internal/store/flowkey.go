package store

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// flowKey is a flow: addresses, and ports with the protocol.
type flowKey [5]uint64

func (w *row) flowKey() flowKey {
	return flowKey{
		binary.NativeEndian.Uint64(w.src[:]), binary.NativeEndian.Uint64(w.src[8:]), binary.NativeEndian.Uint64(w.dst[:]), binary.NativeEndian.Uint64(w.dst[8:]),
		uint64(w.sport)<<32 | uint64(w.dport)<<16 | uint64(w.proto),
	}
}

// secrets of this process: whoever chooses flows does not know which share a place.
var secrets = flowKey{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}

func (k *flowKey) hash() uint64 {
	src, dst := folded(k[0]^secrets[0], k[1]^secrets[1]), folded(k[2]^secrets[2], k[3]^secrets[3])
	return folded(src^k[4], dst^secrets[4])
}

// folded is a product, of which each bit depends on all bits of both.
func folded(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

package balance

import (
	"sync/atomic"
	"time"
)

// entry is one of the connection table: see enum balance_entry.
type entry uint64

func (e entry) backend() uint64 {
	return uint64(e) >> abiBalanceEntryBALANCE_BACKEND_SHIFT & uint64(MaxBackends-1)
}

func (e entry) stage() abiBalanceStage {
	return abiBalanceStage(e >> abiBalanceEntryBALANCE_STAGE_SHIFT & 3)
}

// age is for how many units it was not seen.
func (e entry) age(now uint32) uint32 {
	return (now - uint32(e)) & uint32(abiBalanceEntryBALANCE_SEEN_MASK)
}

// each calls a function with each entry that is in use; true: it is removed, unless it changed meanwhile.
func (b *Balancer) each(remove func(entry) bool) {
	for i := range b.connections.Values {
		ways := &b.connections.Values[i].Way
		for w := range ways {
			e := atomic.LoadUint64(&ways[w])
			if e != 0 && remove(entry(e)) {
				atomic.CompareAndSwapUint64(&ways[w], e, 0)
			}
		}
	}
}

// forgotten is after how many units an entry is removed that is not established: a client that closed may still send again.
const forgotten = 120

// Sweep removes connections that have ended, or were not seen for long.
func (b *Balancer) Sweep() error {
	return b.do(func() error {
		now := atomic.LoadUint32(&b.memory.Values[0].Now)
		idle := uint32(min(b.cfg.Idle/max(b.unit, time.Millisecond), 1<<15))
		b.each(func(e entry) bool {
			if e.stage() == abiBalanceStageBALANCE_ESTABLISHED {
				return e.age(now) > idle
			}
			return e.age(now) > forgotten
		})
		return nil
	})
}

// established counts connections by the number of their backend.
func (b *Balancer) established() []uint64 {
	n := make([]uint64, MaxBackends)
	b.each(func(e entry) bool {
		if e.stage() != abiBalanceStageBALANCE_CLOSING {
			n[e.backend()]++
		}
		return false
	})
	return n
}

package tap

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stats are what became of selected frames of a queue, since Open.
type Stats struct {
	Queue    int    `json:"queue"`
	ZeroCopy bool   `json:"zero_copy"` // else the kernel copies frames
	Parts    bool   `json:"parts"`     // frames in several buffers are taken
	Buffers  uint64 `json:"buffers"`   // that the program sent here
	Full     uint64 `json:"full"`      // frames that the stack got, since there was no space
	TooLong  uint64 `json:"too_long"`  // frames that the stack got, since they take more buffers than there may be
	// Of the kernel (XDP_STATISTICS).
	Dropped   uint64 `json:"dropped"`    // frames that it could not take
	RingFull  uint64 `json:"ring_full"`  // of them, because the ring was full
	FillEmpty uint64 `json:"fill_empty"` // how often it found no buffer
	Invalid   uint64 `json:"invalid"`    // buffers that it refused
}

// Stats reads them.
func (t *Tap) Stats() (all []Stats, err error) {
	for _, r := range t.queues {
		var k unix.XDPStatistics
		if err := r.get(unix.XDP_STATISTICS, unsafe.Pointer(&k), unsafe.Sizeof(k)); err != nil {
			return nil, fmt.Errorf("tap %s: statistics of queue %d: %w", t.cfg.Interface, r.number, err)
		}
		all = append(all, Stats{
			Queue: r.number, ZeroCopy: r.zeroCopy, Parts: r.parts,
			Buffers: atomic.LoadUint64(&r.state.sent) - r.began[0], Full: atomic.LoadUint64(&r.state.full) - r.began[1],
			TooLong: atomic.LoadUint64(&r.state.tooLong) - r.began[2],
			Dropped: k.Rx_dropped, RingFull: k.Rx_ring_full, FillEmpty: k.Rx_fill_ring_empty_descs, Invalid: k.Rx_invalid_descs,
		})
	}
	return all, nil
}

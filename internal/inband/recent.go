package inband

import (
	"time"
	"unsafe"
)

// passed is a packet that passed the capture point.
type passed struct {
	Packet
	suspicious bool
	taken      bool
}

const (
	recentMin = 16
	recentMax = 1024 // as MaxGap: what is older is never named
)

// recent finds the newest packets of one side by number. It grows with what it
// is given, because most flows have few packets.
type recent struct{ ring []passed }

func (r *recent) put(p passed) {
	p.taken = true
	if r.ring == nil {
		r.ring = make([]passed, recentMin)
	}
	at := r.slot(p.Option.PSNTP)
	for at.taken && at.Option.PSNTP != p.Option.PSNTP && len(r.ring) < recentMax {
		r.grow()
		at = r.slot(p.Option.PSNTP)
	}
	*at = p
}

// bytes is what the ring takes of memory.
func (r *recent) bytes() int { return len(r.ring) * int(unsafe.Sizeof(passed{})) }

func (r *recent) slot(psn uint16) *passed { return &r.ring[int(psn)&(len(r.ring)-1)] }

func (r *recent) grow() {
	old := r.ring
	r.ring = make([]passed, 2*len(old))
	for _, p := range old {
		if p.taken {
			*r.slot(p.Option.PSNTP) = p
		}
	}
}

func (r *recent) get(psn uint16) (passed, bool) {
	if r.ring == nil {
		return passed{}, false
	}
	p := r.slot(psn)
	return *p, p.taken && p.Option.PSNTP == psn
}

// touch notes that number psn passed once more, at a later time.
func (r *recent) touch(psn uint16, at time.Time) {
	if _, ok := r.get(psn); ok {
		r.slot(psn).Time = at
	}
}

package capture

import (
	"bytes"
	"hash/maphash"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

const (
	// handshakesMax bounds the memory for handshakes in progress.
	handshakesMax = 65536
	// A handshake that began less than this ago counts as lost when it must leave.
	handshakeLifetime = 3 * time.Second
)

// handshakeKey is the same for both directions.
type handshakeKey struct {
	a, b            [16]byte
	aPort, bPort    uint16
	iface           flow.Iface
	vlan, innerVLAN uint16
}

func newHandshakeKey(p *parsed) handshakeKey {
	k := handshakeKey{
		a: p.Src, b: p.Dst, aPort: p.SrcPort, bPort: p.DstPort,
		iface: p.Iface, vlan: p.VLAN, innerVLAN: p.InnerVLAN,
	}
	if c := bytes.Compare(k.a[:], k.b[:]); c > 0 || c == 0 && k.aPort > k.bPort {
		k.a, k.b, k.aPort, k.bPort = k.b, k.a, k.bPort, k.aPort
	}
	return k
}

// handshake is what has been seen of one: times in ns, 0 when retransmitted, so
// that no round trip is known (Karn).
type handshake struct {
	syn, synAck       int64
	synSeq, synAckSeq uint32
	answered, done    bool
}

// handshakes measures the round trips of TCP handshakes: SYN to SYN-ACK is the
// way to the responder and back, SYN-ACK to ACK the way to the initiator.
type handshakes struct {
	open fifo[handshakeKey, handshake]
	lost lostHandshakes
}

func newHandshakes() handshakes {
	return handshakes{newFIFO[handshakeKey, handshake](handshakesMax), lostHandshakes{seed: maphash.MakeSeed()}}
}

// lostHandshakes are Bloom filters of unfinished handshakes that had to leave. A
// SYN of one of them is a retransmission, although it looks new.
type lostHandshakes struct {
	seed        maphash.Seed
	period      int64
	now, before []uint64 // of handshakesMax words, made when one has to leave
}

// lostPeriod is how long one is remembered at least: Linux retransmits a SYN for 63 s.
const lostPeriod = 1 << 36 // ns

// place is a word, and three bits in it.
func (l *lostHandshakes) place(k *handshakeKey, seq uint32) (word int, fingerprint uint64) {
	h := maphash.Comparable(l.seed, struct {
		handshakeKey
		seq uint32
	}{*k, seq})
	return int(h % handshakesMax), 1<<(h>>58) | 1<<(h>>52&63) | 1<<(h>>46&63)
}

func (l *lostHandshakes) turn(now int64) {
	period := now / lostPeriod
	if l.now == nil || period == l.period {
		return
	}
	l.now, l.before = l.before, l.now
	clear(l.now)
	if period != l.period+1 {
		clear(l.before)
	}
	l.period = period
}

func (l *lostHandshakes) add(k *handshakeKey, seq uint32, now int64) {
	l.turn(now)
	if l.now == nil {
		l.now, l.before, l.period = make([]uint64, handshakesMax), make([]uint64, handshakesMax), now/lostPeriod
	}
	word, fingerprint := l.place(k, seq)
	l.now[word] |= fingerprint
}

// has is true of every handshake that was added, and of a few others.
func (l *lostHandshakes) has(k *handshakeKey, seq uint32, now int64) bool {
	if l.now == nil {
		return false
	}
	l.turn(now)
	word, fingerprint := l.place(k, seq)
	return l.now[word]&fingerprint == fingerprint || l.before[word]&fingerprint == fingerprint
}

// step takes a packet with SYN, or the first ACK of a flow, at the time now in
// ns, and returns what it completes. lost says that another handshake had to
// leave unfinished.
func (h *handshakes) step(p *parsed, now int64) (rtt flow.RTT, lost bool) {
	key := newHandshakeKey(p)
	s, known := h.open.get(key)
	switch p.tcpFlags & (tcpSYN | tcpACK) {
	case tcpSYN:
		switch {
		case known && !s.done && s.synSeq == p.seq:
			s.syn = 0
		case h.lost.has(&key, p.seq, now):
			return flow.RTT{}, true
		default:
			if known && !s.done {
				h.lost.add(&key, s.synSeq, now)
			}
			s = handshake{syn: now, synSeq: p.seq}
		}
	case tcpSYN | tcpACK:
		if !known || s.done || p.ack != s.synSeq+1 {
			return flow.RTT{}, false
		}
		if s.answered && s.synAckSeq == p.seq {
			s.synAck = 0
			break
		}
		s.answered, s.synAck, s.synAckSeq = true, now, p.seq
		rtt.Responder = between(s.syn, now)
	case tcpACK:
		if !known || s.done || !s.answered || s.synAck == 0 || p.seq != s.synSeq+1 || p.ack != s.synAckSeq+1 {
			return flow.RTT{}, false
		}
		rtt.Initiator = between(s.synAck, now)
		rtt.Responder = between(s.syn, s.synAck)
		s.done = true
	}
	oldKey, old, evicted := h.open.put(key, s)
	if !evicted || old.done {
		return rtt, false
	}
	h.lost.add(&oldKey, old.synSeq, now)
	return rtt, now-old.syn < int64(handshakeLifetime)
}

// between is the time from start to end, or 0 if either is not known or the
// clock was set back meanwhile.
func between(start, end int64) time.Duration {
	if start == 0 || end == 0 {
		return 0
	}
	return max(0, time.Duration(end-start))
}

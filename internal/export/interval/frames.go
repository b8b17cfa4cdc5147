package interval

import (
	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/export/queue"
	"github.com/waymark-net/waymark/internal/store"
)

// Frames encodes intervals as frames, which carry their identity and a checksum. It is part of a Receiver.
type Frames struct{ memory []byte }

// mostMemory is how many bytes are kept for the next interval.
const mostMemory = 1 << 20

// Encode is the frame of an interval.
func (f *Frames) Encode(ended *store.Ended, run, number uint64) ([]byte, error) {
	var encoder store.Encoder // each interval is readable alone
	b := encoder.Append(frame.Begin(f.memory[:0]), ended)
	frame.Finish(b, run, number, uint32(ended.Len()))
	if cap(b) < mostMemory {
		f.memory = b
	}
	return b, nil
}

// Check compares a frame with its checksum, and with the identity in its name.
func (f *Frames) Check(e queue.Entry, b []byte) error {
	one, rest, err := frame.Next(b)
	if err == nil && (len(rest) > 0 || one.Boot != e.Run || one.Sequence != e.Number) {
		err = frame.ErrDamaged
	}
	return err
}

// Renumber gives a frame another identity.
func (f *Frames) Renumber(b []byte, next queue.Entry) {
	frame.Finish(b, next.Run, next.Number, uint32(next.Records))
}

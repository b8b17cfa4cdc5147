package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/waymark-net/waymark/internal/flow"
)

// BufferRecords is the capacity of the slices that Buffer returns.
const BufferRecords = 1024

// RecordBytes is what a record takes of memory in a queue, with its part of the
// buffers that are kept for the next ones.
const RecordBytes = uint64(unsafe.Sizeof(flow.Record{}) * 5 / 4)

// buffers keeps the slices of exported batches for the next ones.
type buffers struct {
	mu   sync.Mutex
	most int // that are kept; each takes a quarter of a megabyte
	free [][]flow.Record
}

func newBuffers() *buffers {
	b := &buffers{}
	b.keep(0)
	return b
}

// keep keeps up to a quarter of what the queues may hold.
func (f *buffers) keep(queued int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most = max(2, min(32, queued/BufferRecords/4))
}

// batch is a slice of records that several outputs read.
type batch struct {
	records []flow.Record
	readers atomic.Int32
	home    *buffers
}

func (f *buffers) get() []flow.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.free); n > 0 {
		records := f.free[n-1]
		f.free = f.free[:n-1]
		return records
	}
	return make([]flow.Record, 0, BufferRecords)
}

func (f *buffers) put(records []flow.Record) {
	if cap(records) != BufferRecords {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.free) < f.most {
		f.free = append(f.free, records[:0])
	}
}

// wrap makes a batch for a number of readers. A slice that is mostly empty is
// copied: it would hold memory that no queue accounts for.
func (f *buffers) wrap(records []flow.Record, readers int) *batch {
	if len(records) < cap(records)/2 {
		buffer := records
		records = slices.Clip(append([]flow.Record(nil), records...))
		f.put(buffer)
	}
	b := &batch{records: records, home: f}
	b.readers.Store(int32(readers))
	return b
}

// release is called once by every reader: each output that is offered the batch, and
// each segment that is queued.
func (b *batch) release() {
	if b.readers.Add(-1) == 0 {
		b.home.put(b.records)
	}
}

package agent

import (
	"sync"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/pipeline"
)

// leaving gathers expired records into the pipeline's buffers. Records that
// follow each other as the halves of a conversation stay in one buffer.
type leaving struct {
	pipeline *pipeline.Pipeline

	mu      sync.Mutex
	records []flow.Record   // being filled
	full    [][]flow.Record // to be published
	ends    bool            // these are the last records
}

// add takes a copy of a record. It never waits: the table is locked.
func (l *leaving) add(r *flow.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.records); n > 0 && n+1 >= cap(l.records) && !isReverse(&l.records[n-1], r) {
		l.full = append(l.full, l.records)
		l.records = nil
	}
	if l.records == nil {
		l.records = l.pipeline.Buffer()
	}
	l.records = append(l.records, *r)
}

// publish hands over the buffers that are full. It may wait for exporters.
func (l *leaving) publish() {
	l.mu.Lock()
	full, ends := l.full, l.ends
	l.full = nil
	l.mu.Unlock()
	for _, records := range full {
		if ends {
			l.pipeline.PublishLast(records)
		} else {
			l.pipeline.Publish(records)
		}
	}
}

// flush hands over everything.
func (l *leaving) flush() {
	l.mu.Lock()
	if len(l.records) > 0 {
		l.full = append(l.full, l.records)
		l.records = nil
	}
	l.mu.Unlock()
	l.publish()
}

// last announces the records that end with the agent.
func (l *leaving) last() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = true
}

func isReverse(a, b *flow.Record) bool {
	return a.Src == b.Dst && a.Dst == b.Src && a.Proto == b.Proto && a.Direction != b.Direction
}

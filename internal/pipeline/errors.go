package pipeline

import "errors"

// ErrGone is wrapped by an exporter whose output will not come back, such as a
// closed pipe. Its records are counted as lost and not offered again.
var ErrGone = errors.New("output is gone")

// LostError is wrapped by an exporter that learns that records it took before
// did not arrive.
type LostError struct {
	Records uint64
	Reason  string // lower case with underscores, one of few
	Err     error
}

func (e *LostError) Error() string { return e.Err.Error() }
func (e *LostError) Unwrap() error { return e.Err }

// Reasons for losses before an exporter took a record.
const (
	reasonQueueFull = "queue_full" // the exporter was too slow, or failed for too long
	reasonShutdown  = "shutdown"   // still waiting at the end of the flush
	reasonGone      = "gone"       // ErrGone
)

// Places of losses, for obs.Loss.
const (
	whereQueue  = "queue"  // never left the agent
	whereOutput = "output" // left the agent but did not arrive
)

package verdict

import (
	"context"
	"time"
)

// Ahead is one turn of Run.
func (e *Examiner) Ahead(ctx context.Context, now time.Time) time.Duration { return e.ahead(ctx, now) }

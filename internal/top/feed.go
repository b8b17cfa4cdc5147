package top

import (
	"context"
	"errors"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/obs"
)

// What the feed tells the model.
type (
	answerMsg struct {
		generation int
		answer     api.Answer
	}
	errorMsg struct {
		generation int
		err        error
	}
	statusMsg struct{ status obs.Status }
)

// request is what the model wants to see. Answers to older ones are passed over.
type request struct {
	generation int
	filter     string
	by         string
	sort       string
	reverse    bool
}

const (
	maxRows     = 200             // that are asked for: more than a screen
	retryAfter  = time.Second     // when the agent does not answer
	statusEvery = 5 * time.Second // coverage and losses
)

// feed follows the agent, one request at a time.
type feed struct {
	client Client
	every  time.Duration
	send   func(tea.Msg)

	mu   sync.Mutex
	stop context.CancelFunc
}

// ask replaces the request.
func (f *feed) ask(ctx context.Context, r request) {
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	if f.stop != nil {
		f.stop()
	}
	f.stop = cancel
	f.mu.Unlock()
	go f.run(ctx, r)
}

// run tells first what is there, then each interval, and starts again when the
// agent went away.
func (f *feed) run(ctx context.Context, r request) {
	ask := api.Request{Filter: r.filter, By: r.by, Sort: r.sort, Reverse: r.reverse, Limit: maxRows}
	for ctx.Err() == nil {
		err := f.follow(ctx, r.generation, ask)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the agent has stopped")
		}
		f.send(errorMsg{r.generation, err})
		sleep(ctx, retryAfter)
	}
}

func (f *feed) follow(ctx context.Context, generation int, ask api.Request) error {
	now := ask
	now.Since = (f.every * 3 / 2).String()
	answer, err := f.client.Flows(ctx, now)
	if err != nil {
		return err
	}
	f.send(answerMsg{generation, answer})
	ask.Every = f.every
	return f.client.Follow(ctx, ask, func(a api.Answer) error {
		f.send(answerMsg{generation, a})
		return nil
	})
}

// pollStatus keeps coverage and losses fresh. What goes wrong here, following
// tells.
func (f *feed) pollStatus(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, statusEvery)
		if s, err := f.client.Status(ctx); err == nil {
			f.send(statusMsg{s})
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

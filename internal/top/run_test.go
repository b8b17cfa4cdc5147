package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

// fakeAgent answers from the scene, so that Run can be tried without a kernel.
type fakeAgent struct {
	t *testing.T

	mu       sync.Mutex
	requests []api.Request
	fail     error
}

func (f *fakeAgent) Status(context.Context) (obs.Status, error) {
	return obs.Status{Host: "alpha"}, f.fail
}

func (f *fakeAgent) Flows(_ context.Context, r api.Request) (api.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r)
	return answers(f.t, r.By, r.Sort, 1, nil)[0], nil
}

func (f *fakeAgent) Follow(ctx context.Context, r api.Request, emit func(api.Answer) error) error {
	if r.Every != 2*time.Second || r.Limit != maxRows {
		return fmt.Errorf("asked for %+v", r)
	}
	for _, a := range answers(f.t, r.By, r.Sort, 3, nil) {
		if err := emit(a); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestRun(t *testing.T) {
	keys, typed := io.Pipe()
	defer typed.Close()
	var out await.Text
	agent := &fakeAgent{t: t}
	top, err := New(Default(), Deps{Client: agent, In: keys, Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- top.Run(t.Context()) }()
	wait := func(text string) {
		t.Helper()
		await.Success(t, func() error {
			if shown := out.String(); !strings.Contains(shown, text) {
				return fmt.Errorf("never showed %q:\n%s", text, shown)
			}
			return nil
		})
	}
	wait("CLIENT")
	wait("03:04:11") // the third interval
	fmt.Fprint(typed, "4")
	wait("services")
	wait("PORT")
	fmt.Fprint(typed, "q")
	if err := <-done; err != nil {
		t.Error(err)
	}
	agent.mu.Lock()
	defer agent.mu.Unlock()
	if len(agent.requests) != 2 || agent.requests[1].By != "service" {
		t.Errorf("asked %+v", agent.requests)
	}
}

func TestNoAgentAtTheStart(t *testing.T) {
	agent := &fakeAgent{t: t, fail: api.ErrNoAgent}
	top, err := New(Default(), Deps{Client: agent, In: strings.NewReader(""), Out: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := top.Run(t.Context()); !errors.Is(err, api.ErrNoAgent) {
		t.Errorf("Run = %v", err)
	}
}

func TestBadConfig(t *testing.T) {
	for _, cfg := range []Config{{View: "flow"}, {View: "flows", Filter: "tpc"}} {
		if _, err := New(cfg, Deps{}); err == nil {
			t.Errorf("accepted %+v", cfg)
		}
	}
}

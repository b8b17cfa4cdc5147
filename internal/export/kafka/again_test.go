package kafka_test

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/export/interval"
	"github.com/waymark-net/waymark/internal/export/kafka/pipe"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/await"
)

// testAgain: an interval that is sent again, as its answer was lost, is there once, whichever program gets it; another one with the same
// number, as after a snapshot of the machine was restored, is there, too.
func (s *scene) testAgain(t *testing.T) {
	a, b, c := frameOf(t, 1, 3), frameOf(t, 1, 2), frameOf(t, 2, 1)
	s.speak(t, a, a)
	s.speak(t, a, c)
	s.speak(t, c, c, b)
	if n := len(s.Read(t, "again")); n != 3+1+2 {
		t.Errorf("%d records are there, want 6", n)
	}
}

// frameOf is an interval of so many records.
func frameOf(t *testing.T, number uint64, records int) []byte {
	t.Helper()
	var frame []byte
	feed := &agent{store: store.New(store.Default())}
	feed.store.OnEnd(func(ended store.Ended) {
		var err error
		if frame, err = new(interval.Frames).Encode(&ended, 7, number); err != nil {
			t.Fatal(err)
		}
	})
	feed.fill(records)
	return frame
}

// speak has a program send intervals, and kills it.
func (s *scene) speak(t *testing.T, frames ...[]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	cfg := pipe.Configuration{Host: origin.Host, Brokers: []string{s.Plain}, Topic: "again", ID: "again", Format: "json", Compression: "none"}
	if err := pipe.WriteJSON(in, pipe.Configure, cfg); err != nil {
		t.Fatal(err)
	}
	for _, frame := range frames {
		await.Success(t, func() error { // the broker's coordinators take a moment at first
			if err := pipe.Write(in, pipe.Interval, frame); err != nil {
				t.Fatal(err)
			}
			kind, b, err := pipe.Read(out)
			if err != nil || kind != pipe.Answered {
				t.Fatalf("%c %s: %v", kind, b, err)
			}
			if text := decode(t, string(b))["error"]; text != "" {
				return fmt.Errorf("%v", text)
			}
			return nil
		})
	}
}

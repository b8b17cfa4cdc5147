// Package await waits for what happens at the same time as a test: conditions, and text that others write. Only tests
// call it.
package await

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"
)

// Patience is how long a condition may take: long enough for a machine that has other work.
const Patience = 3 * time.Minute

// Success tries until there is no error.
func Success(t testing.TB, try func() error) {
	t.Helper()
	pause := time.Millisecond
	for deadline := time.Now().Add(Patience); ; time.Sleep(pause) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", Patience, err)
		}
		// What comes soon is seen soon; asking costs what is waited for CPU time.
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// True waits for a condition; what names it.
func True(t testing.TB, what string, done func() bool) {
	t.Helper()
	Success(t, func() error {
		if !done() {
			return errors.New("waiting for: " + what)
		}
		return nil
	})
}

// Signal waits until a channel is closed or delivers; what names it.
func Signal[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatalf("not within %v: %s", Patience, what)
		panic("unreachable")
	}
}

// Text is a buffer that is read while others write.
type Text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *Text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

package main

import (
	"bytes"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/test/await"
)

// kill sends this process a signal.
func kill(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), sig); err != nil {
		t.Fatal(err)
	}
}

// timeout(1) signals a process and its group: both are one request to stop. One
// that comes later ends the process at once.
func TestSignalsEndTheContext(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(0, 0)
	asked, forced := make(chan struct{}, 8), make(chan struct{})
	s := &stopper{log: slog.New(slog.DiscardHandler), force: func() { close(forced) }, clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		asked <- struct{}{}
		return now
	}}
	ctx, release := s.context(t.Context())
	defer release()
	kill(t, syscall.SIGTERM)
	await.Signal(t, "the end of the context by SIGTERM", ctx.Done())
	await.Signal(t, "a reading of the clock", asked)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		kill(t, sig)
		await.Signal(t, "the repeated signal", asked)
	}
	select {
	case <-forced:
		t.Fatal("a repeated signal within a second forces the end")
	default:
	}
	mu.Lock()
	now = now.Add(sameStop)
	mu.Unlock()
	kill(t, syscall.SIGTERM)
	await.Signal(t, "the end forced by a later signal", forced)
}

func TestRunEndsAfterItsTime(t *testing.T) {
	var log bytes.Buffer
	s := newStopper(slog.New(slog.NewTextHandler(&log, nil)), time.Millisecond)
	ctx, release := s.context(t.Context())
	if ctx.Err() != nil {
		t.Error("it ends before it counts")
	}
	s.counting()
	s.counting() // readiness may change
	await.Signal(t, "the end of the context by time", ctx.Done())
	release()
	if !strings.Contains(log.String(), `reason="run --for"`) {
		t.Errorf("logged %s", log.String())
	}
}

func TestHangupReloads(t *testing.T) {
	reloaded := make(chan struct{}, 1)
	// onHangup may not listen yet, and a SIGHUP that no one takes would end the test.
	held := make(chan os.Signal, 1)
	signal.Notify(held, syscall.SIGHUP)
	defer signal.Stop(held)
	go onHangup(t.Context(), func() { reloaded <- struct{}{} })
	for deadline := time.Now().Add(time.Minute); ; {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reloaded:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("SIGHUP does not reload")
		}
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log := command.NewLogger(config.Log{Format: "json"}, command.Level(config.Log{Level: "warn"}), &b)
	log.Info("no")
	log.Warn("yes", "n", 1)
	if got := b.String(); strings.Contains(got, "no\"") || !strings.Contains(got, `"msg":"yes","n":1`) {
		t.Errorf("%s", got)
	}
	b.Reset()
	command.NewLogger(config.Log{Format: "text"}, command.Level(config.Log{Level: "debug"}), &b).Debug("yes")
	if !strings.Contains(b.String(), "level=DEBUG msg=yes") {
		t.Errorf("%s", b.String())
	}
}

func TestUTF8Locale(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want bool
	}{
		{map[string]string{"LANG": "en_GB.UTF-8"}, true},
		{map[string]string{"LANG": "C.utf8"}, true},
		{map[string]string{"LANG": "en_GB.UTF-8", "LC_ALL": "C"}, false},
		{map[string]string{"LC_CTYPE": "C.UTF-8"}, true},
		{nil, false},
	} {
		if got := utf8Locale(func(name string) string { return tt.env[name] }); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.env, got, tt.want)
		}
	}
}

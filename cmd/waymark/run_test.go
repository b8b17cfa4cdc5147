package main

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
)

func TestNotify(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@waymark-test-" + filepath.Base(t.TempDir())} {
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("NOTIFY_SOCKET", name)
		notify(slog.New(slog.DiscardHandler), "READY=1\nSTATUS=counting")
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := conn.Read(b)
		if err != nil || string(b[:n]) != "READY=1\nSTATUS=counting" {
			t.Errorf("%s: %q, %v", name, b[:n], err)
		}
		conn.Close()
	}
}

func TestNotifyWithoutSystemd(t *testing.T) {
	var log bytes.Buffer
	t.Setenv("NOTIFY_SOCKET", "")
	notify(slog.New(slog.NewTextHandler(&log, nil)), "READY=1")
	if log.Len() != 0 {
		t.Errorf("logged %s", log.String())
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	notify(slog.New(slog.NewTextHandler(&log, nil)), "READY=1")
	if !strings.Contains(log.String(), "telling systemd") {
		t.Errorf("a socket that is not there is passed over: %s", log.String())
	}
}

func TestSignalsEndTheContext(t *testing.T) {
	ctx, release := withSignals(t.Context(), slog.New(slog.DiscardHandler))
	defer release()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Error("SIGTERM does not end the context")
	}
}

func TestHangupReopens(t *testing.T) {
	reopened := make(chan struct{}, 1)
	// onHangup may not listen yet, and a SIGHUP that no one takes would end the test.
	held := make(chan os.Signal, 1)
	signal.Notify(held, syscall.SIGHUP)
	defer signal.Stop(held)
	go onHangup(t.Context(), slog.New(slog.DiscardHandler), func() { reopened <- struct{}{} })
	for deadline := time.Now().Add(5 * time.Second); ; {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reopened:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("SIGHUP does not reopen")
		}
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log := newLogger(config.Log{Level: "warn", Format: "json"}, &b)
	log.Info("no")
	log.Warn("yes", "n", 1)
	if got := b.String(); strings.Contains(got, "no\"") || !strings.Contains(got, `"msg":"yes","n":1`) {
		t.Errorf("%s", got)
	}
	b.Reset()
	newLogger(config.Log{Level: "debug", Format: "text"}, &b).Debug("yes")
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

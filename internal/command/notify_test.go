package command

import (
	"bytes"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/test/await"
)

// A manager that does not read its socket delays the agent, and does not stop it.
func TestNotifyUnread(t *testing.T) {
	defer func(before time.Duration) { notifyTimeout = before }(notifyTimeout)
	notifyTimeout = time.Millisecond
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	var text await.Text
	log := slog.New(slog.NewTextHandler(&text, nil))
	for range 1000 {
		Notify(log, "RELOADING=1")
		if strings.Contains(text.String(), "timeout") {
			return
		}
	}
	t.Errorf("no message was refused: %s", &text)
}

func TestNotify(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@waymark-test-" + filepath.Base(t.TempDir())} {
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("NOTIFY_SOCKET", name)
		Notify(slog.New(slog.DiscardHandler), "READY=1\nSTATUS=counting")
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
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
	Notify(slog.New(slog.NewTextHandler(&log, nil)), "READY=1")
	if log.Len() != 0 {
		t.Errorf("logged %s", log.String())
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	Notify(slog.New(slog.NewTextHandler(&log, nil)), "READY=1")
	if !strings.Contains(log.String(), "notifying systemd") {
		t.Errorf("a socket that is not there is passed over: %s", log.String())
	}
}

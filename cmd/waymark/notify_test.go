package main

import (
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
		notify(log, "RELOADING=1")
		if strings.Contains(text.String(), "timeout") {
			return
		}
	}
	t.Errorf("no message was refused: %s", &text)
}

package main

import (
	"log/slog"
	"net"
	"os"
)

// notify tells systemd about the agent, as sd_notify(3) does. Without systemd
// there is no NOTIFY_SOCKET, and nothing happens.
func notify(log *slog.Logger, state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	// The net package reads a leading @ as the abstract namespace, as systemd does.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		log.Warn("notifying systemd", "error", err)
		return
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		log.Warn("notifying systemd", "error", err)
	}
}

package command

import (
	"log/slog"
	"net"
	"os"
	"time"
)

// notifyTimeout is how long systemd may take to read a message.
var notifyTimeout = time.Second

// Notify tells systemd about the agent, as sd_notify(3) does. Without systemd
// there is no NOTIFY_SOCKET, and nothing happens.
func Notify(log *slog.Logger, state string) {
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
	// A manager that has stopped reading must not stop the agent, which reloads only then.
	if err := conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		log.Warn("notifying systemd", "error", err)
		return
	}
	if _, err := conn.Write([]byte(state)); err != nil {
		log.Warn("notifying systemd", "error", err)
	}
}

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
)

// maxSegment is the most payload that a segment has on links of the lab.
const maxSegment = 1440

// cookieSize is what iperf3 sends on a data connection before the data that
// it reports: the name of the test (COOKIE_SIZE of its iperf.h).
const cookieSize = 37

// iperf3 sends TCP for two seconds, by a program that is not ours, and tells
// what that program says it sent.
func iperf3(ctx context.Context, from, to *lab.Host) (sent, error) {
	// A signal may end iperf3 before it removes the file that it makes here.
	dir, err := os.MkdirTemp("", "waymark-iperf3")
	if err != nil {
		return sent{}, err
	}
	defer os.RemoveAll(dir)
	tmp := "TMPDIR=" + dir
	server := exec.CommandContext(ctx, "env", tmp, "iperf3", "--server", "--one-off", "--forceflush")
	listening := newWatcher("Server listening")
	server.Stdout, server.Stderr = listening, io.Discard
	if err := to.Start(server); err != nil {
		return sent{}, fmt.Errorf("iperf3 server: %w: make setup-demo installs it", err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	if err := listening.wait(ctx); err != nil {
		return sent{}, fmt.Errorf("iperf3 server does not listen: %w", err)
	}
	out, err := from.Run(ctx, "env", tmp, "iperf3", "--client", to.Addr6().String(), "--time", "2", "--json")
	if err != nil {
		return sent{}, fmt.Errorf("iperf3 client: %w", err)
	}
	var report struct {
		Start struct {
			Connected []struct {
				Port uint16 `json:"local_port"`
			} `json:"connected"`
		} `json:"start"`
		End struct {
			Sent struct {
				Bytes       uint64 `json:"bytes"`
				Retransmits uint64 `json:"retransmits"`
			} `json:"sum_sent"`
			Received struct {
				Bytes uint64 `json:"bytes"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Start.Connected) == 0 {
		return sent{}, fmt.Errorf("iperf3 client: its report is not understood: %w", err)
	}
	return sent{
		what:   "iperf3, IPv6, from received to sent",
		filter: fmt.Sprintf("proto tcp and direction egress and sport %d", report.Start.Connected[0].Port),
		bytes:  cookieSize + report.End.Received.Bytes,
		// iperf3 stops with data in its socket, and tells segments sent again by number only.
		most: cookieSize + report.End.Sent.Bytes + report.End.Sent.Retransmits*maxSegment,
	}, nil
}

// watcher waits for a text in what a program prints.
type watcher struct {
	text string
	seen chan struct{}

	mu   sync.Mutex
	tail string
	done bool
}

func newWatcher(text string) *watcher { return &watcher{text: text, seen: make(chan struct{})} }

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail += string(p)
	if !w.done && strings.Contains(w.tail, w.text) {
		w.done = true
		close(w.seen)
	}
	return len(p), nil
}

func (w *watcher) wait(ctx context.Context) error {
	select {
	case <-w.seen:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Second):
		return errors.New("not within 5 s")
	}
}

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/waymark-net/waymark/internal/lab/wire"
)

// NewRelay is what moves the frames of the topology "path": A is alpha, B is
// beta. Nothing passes until it runs.
func (l *Lab) NewRelay(cfg wire.Config, log *slog.Logger) (*wire.Relay, error) {
	if l.wire == nil {
		return nil, l.noWireError()
	}
	return wire.New(cfg, wire.Deps{
		A: "to-" + l.hosts[0].Name, B: "to-" + l.hosts[1].Name, In: l.wire.Do, Log: log,
	})
}

// ServeRelay runs a relay for others on this machine: Down finds it, RelayStats
// asks it. It returns when ctx is done or the relay fails.
func (l *Lab) ServeRelay(ctx context.Context, relay *wire.Relay) error {
	self, err := FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := RecordRelay(l.cfg.Prefix, self); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-relay.Ready():
	}
	socket := RelaySocket(l.cfg.Prefix)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		cancel()
		return errors.Join(fmt.Errorf("listen on %s: %w", socket, err), <-ended)
	}
	defer listener.Close()
	go answer(listener, relay)
	return <-ended
}

// answer writes the counts to whoever connects.
func answer(listener net.Listener, relay *wire.Relay) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_ = json.NewEncoder(c).Encode(relay.Stats()) // who does not listen does not get them
		c.Close()
	}
}

// StartRelay starts a process that is to call ServeRelay, in the background and
// in the namespace of the wire, where Down finds it even if it crashes at once. It
// returns when frames move.
func (l *Lab) StartRelay(cmd *exec.Cmd) error {
	if l.wire == nil {
		return l.noWireError()
	}
	file := RelayLog(l.cfg.Prefix)
	log, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of relay: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.wire.Start(cmd); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	const patience = 10 * time.Second
	for deadline := time.After(patience); ; {
		if _, err := RelayStats(l.cfg.Prefix); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(file)
			return fmt.Errorf("the relay ended at once: %w: %s", errors.Join(err, errEnded), bytes.TrimSpace(said))
		case <-deadline:
			return fmt.Errorf("the relay does not run after %v: see %s", patience, file)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

var errEnded = errors.New("no frames moved")

func (l *Lab) noWireError() error {
	return fmt.Errorf("%w: topology %q has no wire: make a lab of topology \"path\"", ErrConfig, l.cfg.Topology)
}

// RelayStats asks the relay that runs in the background for its counts.
func RelayStats(prefix string) (wire.Stats, error) {
	c, err := net.Dial("unix", RelaySocket(prefix))
	if err != nil {
		return wire.Stats{}, fmt.Errorf("ask the relay of lab with prefix %q: %w", prefix, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	var stats wire.Stats
	if err := json.NewDecoder(c).Decode(&stats); err != nil {
		return wire.Stats{}, fmt.Errorf("counts of the relay of lab with prefix %q: %w", prefix, err)
	}
	return stats, nil
}

// Package demo demonstrates Waymark: it creates a lab, runs agents in it as on real
// hosts, sends traffic, queries the agents with the commands that a user would type,
// and compares their answers with the ground truth. It removes everything that it
// created. waymark lab demo calls it.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/term"
)

// Config of a demonstration.
type Config struct {
	Binary string    // waymark itself
	Prefix string    // of the lab's namespaces
	Out    io.Writer // what the user is shown
	Log    io.Writer // progress, and what the agents log
}

// demo is one demonstration under way.
type demo struct {
	Config
	dir     string
	history string // directory of it; empty: agents keep none
	agents  []*agent
}

// Run shows everything, in less than a minute.
func Run(ctx context.Context, cfg Config) (err error) {
	d := &demo{Config: cfg}
	if d.dir, err = os.MkdirTemp("", "waymark-demo-"); err != nil {
		return fmt.Errorf("place for the agents' files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	if err := d.flows(ctx); err != nil {
		return err
	}
	if err := d.delays(ctx); err != nil {
		return err
	}
	return d.paths(ctx)
}

// interrupted puts the reason before all that follows from it.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted: all of it is taken down again")
	}
	return err
}

// say writes a headline of the story, in bold letters where there are any.
func (d *demo) say(format string, args ...any) {
	if term.IsTerminal(d.Out) {
		format = "\033[1m" + format + "\033[0m"
	}
	fmt.Fprintf(d.Out, "\n"+format+"\n", args...)
}

// agent is a waymark run on one host of the lab.
type agent struct {
	host   *lab.Host
	cmd    *exec.Cmd
	ended  chan error    // has how the process ended
	gone   chan struct{} // is closed then
	client *api.Client
	socket string
}

// start runs an agent on a host and waits until it counts. more is added to its
// configuration.
func (d *demo) start(ctx context.Context, h *lab.Host, more string) error {
	a, err := d.launch(h, more)
	if err != nil {
		return err
	}
	return a.ready(ctx)
}

// launch starts an agent on a host.
func (d *demo) launch(h *lab.Host, more string) (*agent, error) {
	a := &agent{host: h, socket: filepath.Join(d.dir, h.Name+".sock"), ended: make(chan error, 1), gone: make(chan struct{})}
	a.client = api.NewClient(a.socket)
	config := filepath.Join(d.dir, h.Name+".yaml")
	history := "{use: never}"
	if d.history != "" {
		history = fmt.Sprintf("{use: always, path: %s}", d.history)
	}
	ifaces := make([]string, len(h.Interfaces))
	for i := range h.Interfaces {
		ifaces[i] = h.Interfaces[i].Name
	}
	text := fmt.Sprintf(`interfaces: [%s]
flow: {max_entries: 65536, scan_interval: 500ms}
history: %s
export:
  - jsonl: {path: %s}
api: {socket: %s}
log: {level: warn}
%s`, strings.Join(ifaces, ", "), history, filepath.Join(d.dir, h.Name+".jsonl"), a.socket, more)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	a.cmd = exec.Command(d.Binary, "run", "--config", config)
	a.cmd.Stdout, a.cmd.Stderr = d.Log, d.Log
	// Ctrl-C in a terminal is for the demonstration, which ends its agents.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := h.Start(a.cmd); err != nil {
		return nil, fmt.Errorf("agent on %s: %w", h.Name, err)
	}
	go func() {
		a.ended <- a.cmd.Wait()
		close(a.gone)
	}()
	d.agents = append(d.agents, a)
	return a, nil
}

// ready waits until the agent counts.
func (a *agent) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // five agents load programs at once, on a busy machine
	defer cancel()
	go func() {
		select {
		case <-a.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := a.client.Wait(ctx); err != nil {
		return fmt.Errorf("agent on %s: %w", a.host.Name, err)
	}
	return nil
}

// stop ends all agents as systemd would, and returns the longest that one took.
func (d *demo) stop() (longest time.Duration, err error) {
	var errs []error
	for _, a := range d.agents {
		// One that ended by itself says so below.
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
	}
	start := time.Now()
	for _, a := range d.agents {
		if err := <-a.ended; err != nil && !terminated(err) {
			errs = append(errs, fmt.Errorf("agent on %s: %w", a.host.Name, err))
		}
		longest = time.Since(start)
	}
	d.agents = nil
	return longest, errors.Join(errs...)
}

// terminated: our signal came before the agent listened to it.
func terminated(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// show runs a verb of waymark and shows it as typed at a prompt.
func (d *demo) show(ctx context.Context, a *agent, args ...string) error {
	fmt.Fprintf(d.Out, "%s$ waymark %s\n", a.host.Name, strings.Join(quoted(args), " "))
	cmd := exec.CommandContext(ctx, d.Binary, append(args, "--socket", a.socket)...)
	cmd.Stdout, cmd.Stderr = d.Out, d.Log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("waymark %s: %w", args[0], err)
	}
	return nil
}

func quoted(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if out[i] = a; strings.ContainsAny(a, " *") {
			out[i] = "'" + a + "'"
		}
	}
	return out
}

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/waymark-net/waymark/internal/topology"
)

// Host is a host of a lab: a network namespace.
type Host struct {
	Name       string
	Netns      string // name of its namespace
	Interfaces []Interface
}

// Do runs fn in the host's network namespace on a thread of its own. Sockets
// made there stay there; goroutines that fn starts do not run there. t.FailNow
// may be called in it.
func (h *Host) Do(fn func() error) error { return topology.InNetns(h.Netns, fn) }

// Start starts a process on the host.
func (h *Host) Start(cmd *exec.Cmd) error {
	if err := h.Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s on host %s: %w", strings.Join(cmd.Args, " "), h.Name, err)
	}
	return nil
}

// Run runs a command on the host and returns its standard output. The error of
// a command that failed has what it said on standard error.
func (h *Host) Run(ctx context.Context, argv ...string) (string, error) {
	if len(argv) == 0 {
		return "", fmt.Errorf("run on host %s: no command", h.Name)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := h.Start(cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		said := strings.TrimSpace(stderr.String())
		err = fmt.Errorf("%s on host %s: %w", strings.Join(argv, " "), h.Name, errors.Join(err, ctx.Err()))
		if said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return stdout.String(), err
	}
	return stdout.String(), nil
}

// Exec turns this process into a command that runs on the host. It returns only
// to say why it could not. The command shares the file systems of this process,
// /sys among them, which shows this process's links.
func (h *Host) Exec(argv []string) error {
	file, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("run on host %s: %w", h.Name, err)
	}
	err = h.Do(func() error { return syscall.Exec(file, argv, os.Environ()) })
	return fmt.Errorf("run %s on host %s: %w", file, h.Name, err)
}

// Addr4 is the IPv4 address of the host's first interface.
func (h *Host) Addr4() netip.Addr { return h.Interfaces[0].Addr4.Addr() }

// Addr6 is the IPv6 address of the host's first interface.
func (h *Host) Addr6() netip.Addr { return h.Interfaces[0].Addr6.Addr() }

func (h *Host) interfaceTo(peer string) Interface {
	for _, i := range h.Interfaces {
		if i.Peer == peer {
			return i
		}
	}
	panic(fmt.Sprintf("host %s has no link to %s", h.Name, peer))
}

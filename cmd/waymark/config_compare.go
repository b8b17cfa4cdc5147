package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
)

// runningConfiguration asks the agent on a socket, else the one that other verbs
// ask: the file may be about to change the socket.
func runningConfiguration(ctx context.Context, socket string) (answer api.Configuration, asked string, err error) {
	for _, asked = range []string{socket, (&agentFlag{}).path()} {
		answer, err = api.NewClient(asked).Configuration(ctx)
		if !errors.Is(err, api.ErrNoAgent) {
			break
		}
	}
	return answer, asked, err
}

// compareWithAgent writes how a file differs from what the running agent has: what
// a reload applies, and what takes a restart. Without an agent it writes nothing.
func compareWithAgent(ctx context.Context, file config.Config, w, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, socket, err := runningConfiguration(ctx, file.API.Socket)
	switch {
	case errors.Is(err, api.ErrNoAgent):
		return nil
	case errors.Is(err, fs.ErrPermission):
		fmt.Fprintf(stderr, "waymark: not compared with the running agent: %v\n", err)
		return nil
	case err != nil:
		return err
	}
	// What the agent chose at its start is no difference; without a default route
	// there is one.
	_ = defaultInterfaces(&file, slog.New(slog.DiscardHandler))
	running, err := config.Parse(answer.YAML)
	if err != nil {
		return fmt.Errorf("read the configuration of the agent: %w", err)
	}
	if socket != file.API.Socket {
		fmt.Fprintf(w, "compared with the agent on %s\n", socket)
	}
	var reload, restart []config.Change
	for _, c := range config.Changes(running, file) {
		switch {
		case answer.Elsewhere[c.Key] != "": // stays as it is
		case c.Reload:
			reload = append(reload, c)
		default:
			restart = append(restart, c)
		}
	}
	for _, part := range []struct {
		head    string
		changes []config.Change
	}{
		{"the running agent applies on reload (SIGHUP, systemctl reload waymark):", reload},
		{"the running agent needs a restart for:", restart},
	} {
		if len(part.changes) > 0 {
			fmt.Fprintln(w, part.head)
		}
		for _, c := range part.changes {
			fmt.Fprintf(w, "  %s\n", c)
		}
	}
	if len(reload)+len(restart) == 0 {
		fmt.Fprintln(w, "the running agent has this configuration")
	}
	return nil
}

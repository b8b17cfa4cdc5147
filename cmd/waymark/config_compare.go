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

// compareWithAgent writes how a file differs from what the agent on its socket
// runs: what a reload applies, and what takes a restart. Without an agent it
// writes nothing.
func compareWithAgent(ctx context.Context, file config.Config, w, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := api.NewClient(file.API.Socket).Configuration(ctx)
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

package main

import (
	"errors"
	"io"

	"github.com/waymark-net/waymark/internal/agent"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// printSizes shows how an agent with this configuration divides a memory limit.
func printSizes(w io.Writer, cfg config.Config, limit string) error {
	bytes, err := config.ParseSize(limit)
	if err != nil || bytes == 0 {
		return usageErrorf("--memory %s: want a size such as 512M", limit)
	}
	budget, err := agent.Plan(cfg, bytes)
	if small := (*memory.TooSmallError)(nil); errors.As(err, &small) {
		return usageErrorf("--memory %s: %w", limit, err)
	}
	if err != nil {
		return err
	}
	t := &term.Table{Columns: memoryColumns}
	addShares(t, obs.Memory{Limit: bytes, File: "--memory", Shares: agent.Shares(&budget)})
	return t.Write(w, term.Width(w))
}

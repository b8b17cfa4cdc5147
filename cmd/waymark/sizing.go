package main

import (
	"errors"

	"github.com/waymark-net/waymark/internal/agent"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// sizesTable shows how an agent with this configuration divides a memory limit.
func sizesTable(cfg config.Config, limit string) (*term.Table, error) {
	bytes, err := config.ParseSize(limit)
	if err != nil || bytes == 0 {
		return nil, command.UsageErrorf("--memory %s: want a size such as 512M", limit)
	}
	budget, err := agent.Plan(cfg, bytes)
	if small := (*memory.TooSmallError)(nil); errors.As(err, &small) {
		return nil, command.UsageErrorf("--memory %s: %w", limit, small)
	}
	if err != nil {
		return nil, err
	}
	t := &term.Table{Columns: memoryColumns}
	addShares(t, obs.Memory{Limit: bytes, File: "--memory", Shares: agent.Shares(&budget)})
	return t, nil
}

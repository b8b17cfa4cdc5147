package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// accessText says who may ask the agent, and how.
func accessText(s *obs.Status) string {
	a := s.Access
	if a == nil {
		return "unknown to this agent"
	}
	text := "socket for root and group " + dash(a.Group)
	if a.Loopback != "" {
		text += "; every local user at " + a.Loopback
	}
	if c := a.Console; c != nil {
		text += "; console " + consoleText(c)
	}
	for _, w := range a.Warnings {
		text += "; warning: " + w
	}
	return text
}

// consoleText is what there is to know of the listener with authentication.
func consoleText(c *obs.Console) string {
	scheme := "http"
	if c.TLS {
		scheme = "https"
	}
	var ways []string
	if c.Tokens > 0 {
		ways = append(ways, term.Number(uint64(c.Tokens), "tokens"))
	}
	for _, one := range c.Certificates {
		if one.Use == "clients" {
			ways = append(ways, "certificates of "+one.Name)
		}
	}
	if len(c.Proxies) > 0 {
		ways = append(ways, "proxy "+strings.Join(c.Proxies, ", "))
	}
	text := fmt.Sprintf("%s://%s for %s; %s", scheme, c.Listen, strings.Join(ways, ", "), term.Number(uint64(c.Sessions), "sessions"))
	for _, one := range c.Certificates {
		if one.Use == "console" {
			text += ", certificate until " + one.Ends.Format(time.DateOnly)
		}
	}
	var refused uint64
	for _, n := range c.Refused {
		refused += n
	}
	if refused > 0 {
		text += ", refused " + term.Number(refused, "requests")
	}
	return text
}

// doctorPatience is how long the doctor waits for an agent.
const doctorPatience = 3 * time.Second

// examineAccess asks the running agent who may ask it.
func examineAccess(ctx context.Context) kernel.Check {
	c := kernel.Check{Name: "access", State: kernel.StateOK, Purpose: "only those who should can read flows"}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	var agent agentFlag
	s, err := agent.client().Status(ctx)
	switch {
	case errors.Is(err, api.ErrNoAgent):
		c.Found = "no agent runs; waymark config check examines its configuration"
		return c
	case errors.Is(err, fs.ErrPermission):
		c.Found = "this user may not use " + agent.path()
		return c
	case err != nil:
		c.State, c.Found = kernel.StateDegraded, err.Error()
		return c
	case s.Access == nil:
		return c
	}
	warnings := s.Access.Warnings
	s.Access.Warnings = nil
	c.Found = accessText(&s)
	if len(warnings) > 0 {
		c.State, c.Remedy = kernel.StateDegraded, strings.Join(warnings, "; ")
	}
	return c
}

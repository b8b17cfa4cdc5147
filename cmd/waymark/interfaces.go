package main

import (
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/topology"
)

// defaultInterfaces names, where the configuration names none, the interfaces
// with a default route: those over which a server is reached.
func defaultInterfaces(cfg *config.Config, log *slog.Logger) error {
	if len(cfg.Interfaces) > 0 {
		return nil
	}
	names, err := topology.DefaultRouteInterfaces()
	if err != nil {
		return fmt.Errorf("run: choosing interfaces: %w", err)
	}
	if len(names) == 0 {
		return command.UsageErrorf("run: no interface is configured, and none has a default route: name one with -i IFACE or under interfaces: in the configuration; the interfaces are %s", strings.Join(present(), ", "))
	}
	for _, name := range names {
		cfg.Interfaces = append(cfg.Interfaces, config.Interface{Match: name, Direction: "both"})
	}
	log.Info("no interface is configured: counting on interfaces with a default route", "interfaces", strings.Join(names, ","))
	return nil
}

// present are the names of the interfaces of this host.
func present() []string {
	links, err := net.Interfaces()
	if err != nil {
		return nil // they are listed for a message only
	}
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Name
	}
	return names
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/filter"
)

// resolveTimeout bounds all look-ups of one command.
const resolveTimeout = 3 * time.Second

// filterOf is the filter of a command line: behind --filter, or as arguments.
func filterOf(cmd *cobra.Command, flag string, args []string) (string, error) {
	if flag != "" && len(args) > 0 {
		return "", command.UsageErrorf("%s: two filters, %q and %q: write one, with or without --filter", cmd.Name(), flag, strings.Join(args, " "))
	}
	if len(args) > 0 {
		flag = strings.Join(args, " ")
	}
	return resolveFilter(cmd.Context(), flag, &net.Resolver{PreferGo: true}, cmd.ErrOrStderr())
}

// resolveFilter replaces names in a filter by numbers, as the agent resolves
// nothing. The addresses found are reported to stderr.
func resolveFilter(ctx context.Context, text string, resolver *net.Resolver, stderr io.Writer) (string, error) {
	if _, err := filter.Parse(text); err == nil {
		return text, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	known := map[string][]netip.Addr{}
	f, err := filter.ParseNames(text, filter.Names{
		Hosts: func(name string) ([]netip.Addr, error) {
			if found, ok := known[name]; ok {
				return found, nil
			}
			found, err := resolver.LookupNetIP(ctx, "ip", name)
			if err != nil {
				return nil, lookupError(err)
			}
			known[name] = found
			texts := make([]string, len(found))
			for i, a := range found {
				texts[i] = a.Unmap().String()
			}
			_, err = fmt.Fprintf(stderr, "host %s: %s\n", name, strings.Join(texts, ", "))
			return found, err
		},
		Services: func(name string) (uint16, error) {
			n, err := resolver.LookupPort(ctx, "ip", name)
			return uint16(n), err
		},
	})
	if err != nil {
		return "", command.UsageErrorf("%w", err)
	}
	return f.String(), nil
}

func lookupError(err error) error {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return errors.New("unknown host: not in /etc/hosts or DNS")
	case errors.As(err, &dns) && dns.IsTimeout, errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from DNS within %v: write the address instead", resolveTimeout)
	}
	return fmt.Errorf("resolving the name: %w: write the address instead", err)
}

package main

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/filter"
)

// Every filter in the reference is one.
func TestFilterGuide(t *testing.T) {
	for _, e := range filterGuide {
		if e.text == "host localhost" {
			continue // names are resolved by the command line: script/filter.txtar
		}
		if _, err := filter.Parse(e.text); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// A DNS server that does not answer holds a command up for a bounded time.
func TestResolverHasADeadline(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("udp", silent.LocalAddr().String())
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var stderr bytes.Buffer
	_, err = resolveFilter(ctx, "host www.example.com and tcp", resolver, &stderr)
	if err == nil || !strings.Contains(err.Error(), "host www.example.com: no answer from DNS within 3s: write the address instead") || command.ExitCode(err) != command.ExitUsage {
		t.Errorf("%v", err)
	}
	// Without a name nobody is asked.
	if text, err := resolveFilter(ctx, "port https and 10/8", resolver, &stderr); err != nil || text != "port https and 10/8" {
		t.Errorf("%q, %v", text, err)
	}
	if stderr.Len() > 0 {
		t.Errorf("reported %q", stderr.String())
	}
}

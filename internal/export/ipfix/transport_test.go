package ipfix

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/pipeline"
)

// within is an exporter whose connections are made in a network namespace.
type within struct {
	*Exporter
	ns *lab.Host
}

func (w within) Export(ctx context.Context, records []flow.Record) (n int, err error) {
	err = w.ns.Do(func() (err error) {
		n, err = w.Exporter.Export(ctx, records)
		return err
	})
	return n, err
}

func newWithin(t *testing.T, ns *lab.Host, collector string, set func(*Config)) within {
	t.Helper()
	e := newExporter(t, func(c *Config) {
		c.Collector = collector
		if set != nil {
			set(c)
		}
	})
	e.now = time.Now
	t.Cleanup(func() { e.Close() })
	return within{e, ns}
}

// numbered returns records that are distinguished by their packets.
func numbered(first, n int) []flow.Record {
	records := make([]flow.Record, n)
	for i := range records {
		records[i] = benchmarkRecord
		records[i].Packets = uint64(first + i)
	}
	return records
}

func lostBy(err error) uint64 {
	var lost *pipeline.LostError
	if errors.As(err, &lost) {
		return lost.Records
	}
	return 0
}

func packetsOf(flows []flow.Record) (packets []uint64) {
	for _, r := range flows {
		packets = append(packets, r.Packets)
	}
	return packets
}

func TestNewRefuses(t *testing.T) {
	empty := t.TempDir() + "/empty.pem"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		set  func(*Config)
		want string
	}{
		{func(c *Config) { c.Collector = "127.0.0.1:4739" }, "want udp://"},
		{func(c *Config) { c.Collector = "udp://" }, "want udp://"},
		{func(c *Config) { c.Collector = "sctp://127.0.0.1:4739" }, `scheme "sctp": want udp, tcp or tls`},
		{func(c *Config) { c.MTU = 100 }, "want 512 to 65507"},
		{func(c *Config) { c.MTU = 70000 }, "want 512 to 65507"},
		{func(c *Config) { c.Collector, c.CA = "tls://127.0.0.1", "/nonexistent" }, "set export.ipfix.ca"},
		{func(c *Config) { c.Collector, c.CA = "tls://127.0.0.1", empty }, "no certificate in it"},
		{func(c *Config) { c.Collector, c.Cert = "tls://127.0.0.1", empty }, "one without the other"},
		{func(c *Config) { c.Collector, c.Cert, c.Key = "tls://127.0.0.1", empty, empty }, "empty.pem"},
	} {
		cfg := Default()
		tt.set(&cfg)
		if _, err := New(cfg, origin, time.Now); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q in it", cfg, err, tt.want)
		}
	}
	cfg := Default()
	for collector, want := range map[string]string{
		"udp://collector.example": "collector.example:4739", "tls://[2001:db8::1]": "[2001:db8::1]:4740", "tcp://192.0.2.1:1": "192.0.2.1:1",
	} {
		cfg.Collector = collector
		e, err := New(cfg, origin, time.Now)
		if err != nil || net.JoinHostPort(e.host, e.port) != want || e.Target() != collector || e.Name() != "ipfix" {
			t.Errorf("%s: %+v %v", collector, e, err)
		}
	}
}

func TestRemedies(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EMSGSIZE: "set export.ipfix.mtu lower", unix.ENETUNREACH: "add a route", unix.EHOSTUNREACH: "add a route", unix.EPERM: "packet filter",
	} {
		if err := explain("udp://x", errno); !strings.Contains(err.Error(), want) || !errors.Is(err, errno) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

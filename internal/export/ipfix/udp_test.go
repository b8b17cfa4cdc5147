package ipfix

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
)

// udpCollector decodes what comes to a port of a namespace.
type udpCollector struct {
	conn net.PacketConn
	d    decoder
}

func listenUDP(t *testing.T, ns *lab.Host) *udpCollector {
	t.Helper()
	return listenUDPAt(t, ns, "127.0.0.1:4739")
}

func listenUDPAt(t *testing.T, ns *lab.Host, address string) *udpCollector {
	t.Helper()
	c := &udpCollector{}
	if err := ns.Do(func() (err error) {
		c.conn, err = net.ListenPacket("udp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.conn.Close() })
	return c
}

// read returns the packets of n flows, and what else came with them.
func (c *udpCollector) read(t *testing.T, n int) (packets []uint64, all collected) {
	t.Helper()
	var records []dataRecord
	buf := make([]byte, 65536)
	c.conn.SetReadDeadline(time.Now().Add(time.Minute))
	for len(packets) < n || c.d.messages == 0 {
		size, _, err := c.conn.ReadFrom(buf)
		if err != nil {
			t.Fatalf("collector has %d of %d flows: %v", len(packets), n, err)
		}
		more, err := c.d.message(bytes.Clone(buf[:size]))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, more...)
		all = collect(records, DocumentationPEN)
		packets = packetsOf(all.flows)
	}
	return packets, all
}

func TestUDPRefused(t *testing.T) {
	ns := labtest.UpHost(t)
	e := newWithin(t, ns, "udp://127.0.0.1:4739", nil)

	// Nobody listens: reported before any record is sent.
	n, err := e.Export(t.Context(), numbered(0, 10))
	if n != 0 || !errors.Is(err, unix.ECONNREFUSED) || lostBy(err) != 0 || !strings.Contains(err.Error(), "start a collector there") {
		t.Fatalf("exported %d: %v", n, err)
	}
	c := listenUDP(t, ns)
	if n, err := e.Export(t.Context(), numbered(0, 10)); n != 10 || err != nil {
		t.Fatalf("exported %d: %v", n, err)
	}
	if got, _ := c.read(t, 10); !slices.Equal(got, packetsOf(numbered(0, 10))) {
		t.Errorf("collector has %v", got)
	}

	// The collector ends: the message that was refused is counted as lost, the
	// rest is kept and reaches the next collector, with templates first.
	c.conn.Close()
	records := numbered(10, 100)
	sent, err := e.Export(t.Context(), records)
	lost := lostBy(err)
	if !errors.Is(err, unix.ECONNREFUSED) || sent == 0 || uint64(sent) != lost {
		t.Fatalf("exported %d, %d lost: %v", sent, lost, err)
	}
	if n, err := e.Export(t.Context(), records[sent:]); n != 0 || lostBy(err) != 0 || err == nil {
		t.Fatalf("exported %d to a collector that is not there: %v", n, err)
	}
	c = listenUDP(t, ns)
	if n, err := e.Export(t.Context(), records[sent:]); n != 100-sent || err != nil {
		t.Fatalf("exported %d of %d: %v", n, 100-sent, err)
	}
	if got, all := c.read(t, 100-sent); !slices.Equal(got, packetsOf(records[sent:])) || all.flows[0].Iface != "eth0" {
		t.Errorf("collector has %v of %s", got, all.flows[0].Iface)
	}
}

// Collectors are reached by either protocol, by address or name.
func TestUDPAddresses(t *testing.T) {
	for collector, listens := range map[string]string{
		"udp://[::1]:4739":     "[::1]:4739",
		"udp://localhost:4739": "127.0.0.1:4739",
	} {
		t.Run(collector, func(t *testing.T) {
			ns := labtest.UpHost(t)
			e := newWithin(t, ns, collector, nil)
			c := listenUDPAt(t, ns, listens)
			if n, err := e.Export(t.Context(), numbered(0, 10)); n != 10 || err != nil {
				t.Fatalf("exported %d: %v", n, err)
			}
			if got, _ := c.read(t, 10); !slices.Equal(got, packetsOf(numbered(0, 10))) {
				t.Errorf("collector has %v", got)
			}
		})
	}
}

func TestUDPTemplatesAreResent(t *testing.T) {
	ns := labtest.UpHost(t)
	now := start
	e := newWithin(t, ns, "udp://127.0.0.1:4739", func(c *Config) { c.TemplateInterval = time.Minute })
	e.now = func() time.Time { return now }
	export := func(first int) {
		t.Helper()
		if n, err := e.Export(t.Context(), numbered(first, 1)); n != 1 || err != nil {
			t.Fatalf("exported %d: %v", n, err)
		}
	}
	c := listenUDP(t, ns)
	export(0)
	c.read(t, 1)
	c.d.templates = nil // a collector that was started again
	now = now.Add(59 * time.Second)
	export(1)
	buf := make([]byte, 65536)
	if n, _, err := c.conn.ReadFrom(buf); err != nil {
		t.Fatal(err)
	} else if _, err := c.d.message(buf[:n]); err == nil || !strings.Contains(err.Error(), "unknown template") {
		t.Fatalf("before the interval: %v", err)
	}
	now = now.Add(time.Second)
	export(2)
	if got, all := c.read(t, 1); !slices.Equal(got, []uint64{2}) || all.flows[0].Iface != "eth0" || len(all.options[idStatistics]) == 0 {
		t.Errorf("after the interval: %v of %+v", got, all)
	}
}

// Messages are spread, so that a collector with an ordinary buffer can keep up.
func TestUDPIsPaced(t *testing.T) {
	ns := labtest.UpHost(t)
	listenUDP(t, ns)
	e := newWithin(t, ns, "udp://127.0.0.1:4739", nil)
	if n, err := e.Export(t.Context(), nil); n != 0 || err != nil {
		t.Fatal(err)
	}
	before, began := e.totals.messages, time.Now()
	if n, err := e.Export(t.Context(), numbered(0, 10_000)); n != 10_000 || err != nil {
		t.Fatalf("exported %d: %v", n, err)
	}
	messages := e.totals.messages - before
	if least := time.Duration(messages/burstMessages-1) * burstTime; time.Since(began) < least || messages < 10*burstMessages {
		t.Errorf("%d messages in %v, want at least %v", messages, time.Since(began), least)
	}
}

// An export that is asked to end does so with what it has sent, at once.
func TestUDPExportIsInterrupted(t *testing.T) {
	ns := labtest.UpHost(t)
	e := newWithin(t, ns, "udp://127.0.0.1:4739", nil)
	listenUDP(t, ns)
	if _, err := e.Export(t.Context(), numbered(0, 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const total = 200_000
	if n, err := e.Export(ctx, numbered(1, total)); n == total || err == nil {
		t.Errorf("exported %d of %d: %v", n, total, err)
	}
	if n, err := e.Export(t.Context(), numbered(1, 10)); n != 10 || err != nil {
		t.Errorf("then exported %d: %v", n, err)
	}
}

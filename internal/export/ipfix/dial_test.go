package ipfix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// named has an exporter find these addresses behind its collector's name.
func named(e within, addresses ...string) {
	e.lookup = func(context.Context, string, string) (found []netip.Addr, _ error) {
		for _, a := range addresses {
			found = append(found, netip.MustParseAddr(a))
		}
		return found, nil
	}
}

// behindRouter gives a namespace a route to 198.51.100.0/24 over a router that
// answers with ICMP host unreachable.
func behindRouter(t *testing.T, ns *lab.Host) {
	t.Helper()
	router := labtest.UpHost(t)
	in := func(at *lab.Host, args ...string) {
		t.Helper()
		if err := at.Do(func() error {
			out, err := exec.Command("ip", args...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip %q: %w: %s", args, err, out)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	in(ns, "link", "add", "up0", "type", "veth", "peer", "name", "down0", "netns", router.Netns)
	for _, end := range []struct {
		at            *lab.Host
		name, address string
	}{{ns, "up0", "192.0.2.1/24"}, {router, "down0", "192.0.2.2/24"}} {
		in(end.at, "address", "add", end.address, "dev", end.name)
		in(end.at, "link", "set", end.name, "up")
	}
	in(ns, "route", "add", "198.51.100.0/24", "via", "192.0.2.2")
	in(router, "route", "add", "unreachable", "198.51.100.0/24")
	if err := router.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	// Until then frames are dropped without an error.
	for _, end := range []struct {
		at   *lab.Host
		name string
	}{{ns, "up0"}, {router, "down0"}} {
		await.Success(t, func() error {
			return end.at.Do(func() error {
				l, err := netlink.LinkByName(end.name)
				if err == nil && l.Attrs().OperState != netlink.OperUp {
					err = fmt.Errorf("%s is %s", end.name, l.Attrs().OperState)
				}
				return err
			})
		})
	}
}

// TestUDPTriesAllAddresses: one that has no route, one that refuses, one that a
// router says is unreachable, and one that answers. When that ends, the one after
// it is taken.
func TestUDPTriesAllAddresses(t *testing.T) {
	ns := labtest.UpHost(t)
	behindRouter(t, ns)
	e := newWithin(t, ns, "udp://collector.example:4739", nil)
	dead := []string{"203.0.113.9", "127.0.0.9", "198.51.100.7"}
	named(e, append(dead, "127.0.0.1", "127.0.0.2")...)

	n, err := e.Export(t.Context(), numbered(0, 10))
	if n != 0 || lostBy(err) != 0 {
		t.Fatalf("exported %d to nobody: %v", n, err)
	}
	for _, want := range []error{unix.ENETUNREACH, unix.ECONNREFUSED, unix.EHOSTUNREACH} {
		if !errors.Is(err, want) {
			t.Errorf("error %v does not wrap %v", err, want)
		}
	}
	for _, address := range append(dead, "127.0.0.1", "127.0.0.2") {
		if !strings.Contains(err.Error(), address+":4739: ") {
			t.Errorf("error %v does not name %s", err, address)
		}
	}

	first, second := listenUDPAt(t, ns, "127.0.0.1:4739"), listenUDPAt(t, ns, "127.0.0.2:4739")
	if n, err := e.Export(t.Context(), numbered(0, 10)); n != 10 || err != nil {
		t.Fatalf("exported %d: %v", n, err)
	}
	if got, _ := first.read(t, 10); !slices.Equal(got, packetsOf(numbered(0, 10))) {
		t.Errorf("first collector has %v", got)
	}
	first.conn.Close()
	records := numbered(10, 100)
	sent, err := e.Export(t.Context(), records)
	if !errors.Is(err, unix.ECONNREFUSED) || sent == 0 || uint64(sent) != lostBy(err) {
		t.Fatalf("exported %d, %d lost: %v", sent, lostBy(err), err)
	}
	if n, err := e.Export(t.Context(), records[sent:]); n != 100-sent || err != nil {
		t.Fatalf("exported %d of %d: %v", n, 100-sent, err)
	}
	if got, _ := second.read(t, 100-sent); !slices.Equal(got, packetsOf(records[sent:])) {
		t.Errorf("second collector has %v", got)
	}
}

// TestTLSCollectorWithoutTLS: a collector that hangs up, one that answers in
// another protocol and one that is silent are reported as what they are.
func TestTLSCollectorWithoutTLS(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	for name, answer := range map[string]func(conn net.Conn){
		"hangs up":        func(net.Conn) {},
		"resets":          func(conn net.Conn) { conn.Read(make([]byte, 1)); conn.(*net.TCPConn).SetLinger(0) },
		"answers in HTTP": func(conn net.Conn) { fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n\r\n") },
		"does not answer": func(net.Conn) { <-hold },
		"answers 3 bytes": func(conn net.Conn) { fmt.Fprint(conn, "no\n"); io.Copy(io.Discard, conn) },
	} {
		t.Run(name, func(t *testing.T) {
			ns := labtest.UpHost(t)
			l := listenTCP(t, ns, func(_ int, conn net.Conn) io.Reader {
				answer(conn)
				return strings.NewReader("")
			})
			e := newWithin(t, ns, "tls://127.0.0.1:4739", func(c *Config) { c.DialTimeout = 300 * time.Millisecond })
			n, err := e.Export(t.Context(), numbered(0, 1))
			if n != 0 || !errors.Is(err, errNotTLS) || !strings.Contains(err.Error(), "does not speak TLS") || !strings.Contains(err.Error(), "set export.ipfix.collector to tcp://") {
				t.Errorf("exported %d: %v", n, err)
			}
			l.Close()
			if name == "does not answer" {
				hold <- struct{}{}
			}
		})
	}
}

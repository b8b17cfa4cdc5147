package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// stream is datagrams from one host to another, of which each has to arrive once.
type stream struct {
	sent, received atomic.Uint64
	stop           atomic.Bool
	ended          chan error
}

// startStream keeps a few datagrams on the way until the end.
func startStream(t *testing.T, from, to *lab.Host) *stream {
	t.Helper()
	s := &stream{ended: make(chan error, 1)}
	var in *net.UDPConn
	var out net.Conn
	if err := to.Do(func() (err error) {
		in, err = net.ListenUDP("udp6", &net.UDPAddr{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	if err := from.Do(func() (err error) {
		out, err = net.Dial("udp6", net.JoinHostPort(to.Addr6().String(), fmt.Sprint(in.LocalAddr().(*net.UDPAddr).Port)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	go func() {
		buf := make([]byte, 2000)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			if got := binary.BigEndian.Uint64(buf[:n]); got != s.received.Load() {
				s.ended <- fmt.Errorf("datagram %d arrived in place of %d", got, s.received.Load())
				return
			}
			s.received.Add(1)
		}
	}()
	go func() {
		payload := make([]byte, 100)
		for deadline := time.Now().Add(await.Patience); !s.stop.Load(); {
			if s.sent.Load()-s.received.Load() >= 16 {
				if time.Now().After(deadline) {
					s.ended <- fmt.Errorf("%d of %d datagrams have arrived", s.received.Load(), s.sent.Load())
					return
				}
				unix.Nanosleep(&unix.Timespec{Nsec: 100_000}, nil)
				continue
			}
			deadline = time.Now().Add(await.Patience)
			binary.BigEndian.PutUint64(payload, s.sent.Load())
			if _, err := out.Write(payload); err != nil {
				s.ended <- err
				return
			}
			s.sent.Add(1)
		}
		s.ended <- nil
	}()
	return s
}

// end returns how many datagrams have arrived: all.
func (s *stream) end(t *testing.T) uint64 {
	t.Helper()
	s.stop.Store(true)
	if err := await.Signal(t, "end of the stream", s.ended); err != nil {
		t.Fatal(err)
	}
	await.Success(t, func() error {
		if sent, received := s.sent.Load(), s.received.Load(); sent != received {
			return fmt.Errorf("%d of %d datagrams have arrived", received, sent)
		}
		return nil
	})
	return s.received.Load()
}

// Reloads of both ends of a namespace, of everything that a reload changes, cost neither a packet nor a
// trace; a reload that is refused names line and remedy, and both nodes stay what they are.
func TestReloadNode(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	first := func(id, data int, fields string, size int) string {
		return quick + fmt.Sprintf(`interfaces: [LINKS]
ioam:
  node: {id: %d}
  interfaces: [to-beta:%d:both]
  namespaces: [{id: 123, data: %d, schema: 7}]
  schemas: [{id: 7, data: schema %d}]
  closed_domain: true
  insert: [{name: all, to: "%s", proto: udp, namespace: 123, size: %d, trace: [%s]}]
`, id, id, data, data, beta.Addr6(), size, fields)
	}
	last := func(id, data int, role string) string {
		return quick + fmt.Sprintf(`interfaces: [LINKS]
ioam:
  node: {id: %d}
  interfaces: [{name: to-alpha, id: %d, role: %s}]
  namespaces: [{id: 123, data: %d, remove: true}]
`, id, id, role, data)
	}
	const some, all = "hop_limit_node_id, interface_ids", "hop_limit_node_id, interface_ids, timestamp_seconds, timestamp_fraction, namespace_data, opaque_state_snapshot"
	a := start(t, setup{host: alpha, config: first(1, 1, some, 16)})
	b := start(t, setup{host: beta, config: last(2, 1, "both")})
	s := startStream(t, alpha, beta)
	for i := range 4 {
		if i%2 == 0 {
			a.reload(t, first(11+i, 20+i, all, 96), "configuration reloaded")
		} else {
			a.reload(t, first(11+i, 20+i, some, 16), "configuration reloaded")
		}
		b.reload(t, last(21+i, 30+i, []string{"ingress", "both"}[i%2]), "configuration reloaded")
	}
	// Refused: several errors at a time, each with its line.
	bad := strings.NewReplacer("size: 16", "size: 246", "[{id: 123", "[{id: 123}, {id: 123").Replace(first(14, 23, some, 16))
	a.reload(t, bad, "2 problems in the configuration")
	for _, want := range []string{
		"waymark.yaml:6:27: ioam.namespaces[1]: namespace 123 is given twice; the first is ioam.namespaces[0]",
		"ioam.insert[0].size: 246 bytes; a multiple of 4, at most 244",
	} {
		if !strings.Contains(a.stderr.String(), want) {
			t.Errorf("the refusal lacks %q: %s", want, a.stderr)
		}
	}
	for _, one := range []struct{ text, by, want string }{
		{"id: 123, data", "id: 65536, data", "ioam.namespaces[0].id: 65536 is out of range"},
		{"id: 14}", "id: 16777216}", "waymark.yaml:4:14: ioam.node.id: 16777216 is out of range"},
		{":both", ":ingress", "ioam.insert[0].interface: without role egress for the namespaces of all options"},
		{"size: 16, trace", "size: 240, options: [{namespace: 123, e2e: [sequence_32]}], trace", "bytes of options do not fit the MTU of to-beta, 1500 bytes"},
	} {
		a.reload(t, strings.Replace(first(14, 23, some, 16), one.text, one.by, 1), one.want)
	}
	packets := s.end(t)
	status := a.status(t)
	n := ioamservice.StatusOf(&status)
	if n == nil || *n.NodeID != 14 || len(n.Insertions) != 1 || n.Insertions[0].Inserted != packets || n.Insertions[0].Name != "all" {
		t.Errorf("%d datagrams, status %+v", packets, n)
	}
	await.Success(t, func() error {
		status := b.status(t)
		n := ioamservice.StatusOf(&status)
		if n == nil || n.Paths.Traces != packets || n.Removed != packets || *n.NodeID != 24 {
			return fmt.Errorf("%d datagrams, %+v %+v", packets, n, n.Paths)
		}
		counted := uint64(0)
		for _, p := range pathsOf(t, b) {
			counted += p.Packets
			if len(p.Hops) != 2 {
				return fmt.Errorf("path %+v", p)
			}
		}
		if counted != packets {
			return fmt.Errorf("%d of %d traces are on a path", counted, packets)
		}
		return nil
	})
	a.stop(t)
	b.stop(t)
}

// An interface becomes one of the node's and ceases to be one, without a restart and without a packet lost.
func TestReloadInterfacesOfNode(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	a := start(t, setup{host: alpha, config: quick + `interfaces: [LINKS]
ioam:
  node: {id: 1}
  interfaces: [to-beta:1]
  closed_domain: true
  insert: [{to: "::/0", proto: udp, namespace: 0, size: 16, trace: [hop_limit_node_id, interface_ids]}]
`})
	last := func(names string) string {
		return quick + fmt.Sprintf(`interfaces: [to-*, lo]
ioam:
  node: {id: 2}
  border: "off"
  interfaces: [%s]
  namespaces: [{id: 0, remove: true}]
`, names)
	}
	b := start(t, setup{host: beta, config: last("lo:9")})
	s := startStream(t, alpha, beta)
	more := func() {
		t.Helper()
		was := s.received.Load()
		await.Success(t, func() error {
			if n := s.received.Load(); n < was+100 {
				return fmt.Errorf("%d datagrams have arrived", n-was)
			}
			return nil
		})
	}
	removed := func() uint64 {
		status := b.status(t)
		return ioamservice.StatusOf(&status).Removed
	}
	for range 2 {
		more()
		was := removed()
		more()
		if n := removed(); n != was {
			t.Errorf("removed %d options at an interface that is none of the node's", n-was)
		}
		b.reload(t, last("lo:9, to-alpha:2"), "configuration reloaded")
		was = removed()
		more()
		if n := removed(); n < was+100 {
			t.Errorf("removed %d options of 100 packets at an interface of the node", n-was)
		}
		b.reload(t, last("lo:9"), "configuration reloaded")
	}
	s.end(t)
	if strings.Contains(b.stderr.String(), "need_restart=1") {
		t.Errorf("a restart is asked for: %s", b.stderr)
	}
	a.stop(t)
	b.stop(t)
}

// sendTraces sends packets with an empty trace.
func sendTraces(t *testing.T, c *ioamtest.Courier, packets int) {
	t.Helper()
	for range packets {
		c.Send(t, emptyTrace(t))
	}
}

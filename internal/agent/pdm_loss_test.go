package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/wire"
)

// TestLossIsExact: what the wire loses, doubles and swaps of marked datagrams is
// what the agent reports, in both directions, to the packet.
func TestLossIsExact(t *testing.T) {
	inject := func(drop, double, swap uint64) wire.Direction {
		return wire.Direction{
			Delay: time.Millisecond, Match: wire.DestinationOptions,
			DropEvery: drop, DuplicateEvery: double, ReorderEvery: swap,
		}
	}
	for _, c := range []struct {
		name   string
		ab, ba wire.Direction
	}{
		{"each alone", inject(20, 0, 0), inject(0, 15, 0)},
		{"swaps and a clean way back", inject(0, 0, 10), inject(0, 0, 0)},
		{"all at once", inject(17, 13, 7), inject(11, 9, 5)},
		{"much", inject(3, 4, 5), inject(5, 4, 3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, relay := newPath(t, wire.Config{AB: c.ab, BA: c.ba})
			alpha, beta := l.Host("alpha"), l.Host("beta")
			cfg, path := agentConfig(t, "ebpf", alpha, beta)
			cfg.PDM.Policies = []config.PDMPolicy{{To: "2001:db8::/32", Proto: "udp", For: time.Hour, Interface: "*"}}
			a := start(t, cfg)
			talk(t, alpha, beta, relay)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			injected := relay.Stats()
			records := readRecords(t, path)
			// beta has no state when alpha's first packet comes: receiving makes none.
			checkLoss(t, injected.AB, told(records, beta.Netns), 1)
			checkLoss(t, injected.BA, told(records, alpha.Netns), 0)
		})
	}
}

// datagrams is how many each side sends, the greeting included: a prime, so that
// nothing happens to the last one, and it shows what happened to those before.
const datagrams = 1009

// talk has both sides greet, so that both have a state, and then send at once. It
// returns when everything that the wire let through has arrived.
func talk(t *testing.T, alpha, beta *lab.Host, relay *wire.Relay) {
	t.Helper()
	a, b := socketOn(t, alpha), socketOn(t, beta)
	toA, toB := a.LocalAddr().(*net.UDPAddr).AddrPort(), b.LocalAddr().(*net.UDPAddr).AddrPort()
	for _, greet := range []struct {
		from, to *net.UDPConn
		addr     netip.AddrPort
	}{{a, b, toB}, {b, a, toA}} {
		if err := send(greet.from, greet.addr, 0); err != nil {
			t.Fatal(err)
		}
		if err := receive(greet.to, 1); err != nil {
			t.Fatalf("a greeting: %v", err)
		}
	}
	ended := make(chan error, 4)
	for _, way := range []struct {
		from, to *net.UDPConn
		addr     netip.AddrPort
		counts   func() wire.Counts
	}{
		{a, b, toB, func() wire.Counts { return relay.Stats().AB }},
		{b, a, toA, func() wire.Counts { return relay.Stats().BA }},
	} {
		go func() {
			tick := time.NewTicker(100 * time.Microsecond) // the wire and the sockets keep up
			defer tick.Stop()
			for n := 1; n < datagrams; n++ {
				<-tick.C
				if err := send(way.from, way.addr, n); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
		go func() { ended <- receiveAll(way.to, way.counts) }()
	}
	var errs []error
	for range cap(ended) {
		errs = append(errs, <-ended)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func socketOn(t *testing.T, h *lab.Host) (c *net.UDPConn) {
	t.Helper()
	err := h.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.Addr6(), 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// send sends a datagram like no other: equal ones could be one that came twice.
func send(c *net.UDPConn, to netip.AddrPort, n int) error {
	_, err := c.WriteToUDPAddrPort(binary.BigEndian.AppendUint64(nil, uint64(n)), to)
	return err
}

func receive(c *net.UDPConn, n int) error {
	buf := make([]byte, 64)
	for i := range n {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := c.Read(buf); err != nil {
			return fmt.Errorf("datagram %d of %d: %w", i+1, n, err)
		}
	}
	return nil
}

// receiveAll receives what comes after the greeting. The wire's counts are whole
// once it has seen every datagram.
func receiveAll(c *net.UDPConn, counts func() wire.Counts) error {
	got := 1
	for {
		w := counts()
		coming := int(w.Matched-w.Dropped+w.Duplicated) - got
		if coming == 0 && w.Matched == datagrams {
			return nil
		}
		if err := receive(c, 1); err != nil {
			return fmt.Errorf("the wire: %+v: received %d: %w", w, got, err)
		}
		got++
	}
}

// told adds up what the marks told a host.
func told(records []flow.Record, netns string) (sum flow.PDM) {
	for _, r := range records {
		if r.PDM != nil && r.Netns == netns && r.Direction == flow.Ingress {
			sum.Add(r.PDM)
		}
	}
	return sum
}

func checkLoss(t *testing.T, injected wire.Counts, got flow.PDM, unread uint64) {
	t.Helper()
	t.Logf("lost %d, doubled %d, swapped %d of %d", injected.Dropped, injected.Duplicated, injected.Reordered, injected.Matched)
	if injected.Matched != datagrams || injected.Lost() != 0 || injected.Waited != 0 {
		t.Fatalf("the wire did something else: %+v", injected)
	}
	want := flow.PDM{
		Received: datagrams - injected.Dropped + injected.Duplicated - unread,
		Lost:     int64(injected.Dropped), Reordered: injected.Reordered, Duplicates: injected.Duplicated,
	}
	if got.Received != want.Received || got.Lost != want.Lost || got.Reordered != want.Reordered ||
		got.Duplicates != want.Duplicates || got.Suspicious != 0 {
		t.Errorf("received %d, lost %d, reordered %d, duplicates %d, suspicious %d; want %d, %d, %d, %d, 0",
			got.Received, got.Lost, got.Reordered, got.Duplicates, got.Suspicious,
			want.Received, want.Lost, want.Reordered, want.Duplicates)
	}
}

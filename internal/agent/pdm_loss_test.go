package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
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
			for attempt := 1; ; attempt++ {
				late, contended, err := loseExactly(t, c.ab, c.ba)
				if err == nil {
					return
				}
				if late < stalled && contended == 0 || attempt == 10 {
					t.Fatal(err)
				}
				t.Logf("again, since the wire stalled for %v, and the other processor held the state of %d packets: %v", late, contended, err)
			}
		})
	}
}

// stalled is a delay of the wire, on a busy machine, after which so many datagrams arrive at once that one that was
// swapped names a number older than is believed; after a second, marks are no longer known to arrive.
const stalled = 5 * time.Millisecond

// loseExactly returns how late the wire was at most, how many packets the agent reported as unread because another processor
// held their state, and what the agent reported that the wire did not do.
func loseExactly(t *testing.T, ab, ba wire.Direction) (late time.Duration, contended uint64, err error) {
	t.Helper()
	l, relay := newPath(t, wire.Config{AB: ab, BA: ba})
	alpha, beta := l.Host("alpha"), l.Host("beta")
	cfg, path := agentConfig(t, "ebpf", alpha, beta)
	marking := pdmservice.Section.Edit(&cfg)
	marking.Policies = []pdmservice.PolicyConfig{{To: "2001:db8::/32", Proto: "udp", For: time.Hour, Interface: "*"}}
	marking.MarksPerSecond = 0
	a := start(t, cfg)
	err = talk(t, alpha, beta, relay)
	all := a.Status()
	for _, passed := range pdmservice.StatusOf(&all).Passed {
		if passed.Reason == "contended" {
			contended += passed.Packets
		}
	}
	if stopErr := a.stop(); stopErr != nil {
		t.Fatal(stopErr)
	}
	injected := relay.Stats()
	records := readRecords(t, path)
	late = max(injected.AB.LateMax, injected.BA.LateMax)
	return late, contended, errors.Join(err, checkLoss(injected.AB, reported(records, beta.Netns)), checkLoss(injected.BA, reported(records, alpha.Netns)))
}

// datagrams is how many each side sends with a mark, the greetings included: a prime, so that
// nothing happens to the last one, and it shows what happened to those before.
const datagrams = 1009

// Of the greetings, so many are sent before one is tried with a mark, and so many have one.
const untried, greeted = 3, 2

// talk has both sides greet, until both know that marks arrive, and then send at
// once. It returns when everything that the wire let through has arrived.
func talk(t *testing.T, alpha, beta *lab.Host, relay *wire.Relay) error {
	t.Helper()
	a, b := socketOn(t, alpha), socketOn(t, beta)
	toA, toB := a.LocalAddr().(*net.UDPAddr).AddrPort(), b.LocalAddr().(*net.UDPAddr).AddrPort()
	for i := range untried + greeted {
		if err := errors.Join(send(a, toB, -i-1), receive(b, 1), send(b, toA, -i-1), receive(a, 1)); err != nil {
			return fmt.Errorf("greeting %d: %w", i, err)
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
			for n := greeted; n < datagrams; n++ {
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
	return errors.Join(errs...)
}

func socketOn(t *testing.T, h *lab.Host) (c *net.UDPConn) {
	t.Helper()
	err := h.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.Addr6(), 0)))
		if err != nil {
			return err
		}
		return holdAll(c)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// holdAll has a socket hold all datagrams of a test, however late they are read.
func holdAll(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	})
	return errors.Join(err, failed)
}

// send sends a datagram like no other: equal ones could be one that came twice.
func send(c *net.UDPConn, to netip.AddrPort, n int) error {
	_, err := c.WriteToUDPAddrPort(binary.BigEndian.AppendUint64(nil, uint64(n)), to)
	return err
}

func receive(c *net.UDPConn, n int) error {
	buf := make([]byte, 64)
	for i := range n {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		if _, err := c.Read(buf); err != nil {
			return fmt.Errorf("datagram %d of %d: %w", i+1, n, err)
		}
	}
	return nil
}

// receiveAll receives what comes after the greetings. The wire's counts are whole
// once it has seen every datagram.
func receiveAll(c *net.UDPConn, counts func() wire.Counts) error {
	got := greeted
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

// reported adds up what the marks reported to a host.
func reported(records []flow.Record, netns string) (sum flow.PDM) {
	for _, r := range records {
		if r.PDM != nil && r.Netns == netns && r.Direction == flow.Ingress {
			sum.Add(r.PDM)
		}
	}
	return sum
}

func checkLoss(injected wire.Counts, got flow.PDM) error {
	if injected.Matched != datagrams || injected.Lost() != 0 || injected.Waited != 0 {
		return fmt.Errorf("the wire did something else: %+v", injected)
	}
	want := flow.PDM{
		Received: datagrams - injected.Dropped + injected.Duplicated,
		Lost:     int64(injected.Dropped), Reordered: injected.Reordered, Duplicates: injected.Duplicated,
	}
	if got.Received != want.Received || got.Lost != want.Lost || got.Reordered != want.Reordered ||
		got.Duplicates != want.Duplicates || got.Suspicious != 0 {
		return fmt.Errorf("received %d, lost %d, reordered %d, duplicates %d, suspicious %d; want %d, %d, %d, %d, 0",
			got.Received, got.Lost, got.Reordered, got.Duplicates, got.Suspicious,
			want.Received, want.Lost, want.Reordered, want.Duplicates)
	}
	return nil
}

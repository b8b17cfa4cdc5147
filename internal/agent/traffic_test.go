package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// sumOf adds up the records of one flow at one place.
func sumOf(records []flow.Record, netns string, direction flow.Direction, keep func(*flow.Record) bool) (sum flow.Record) {
	for _, r := range records {
		if r.Netns == netns && r.Direction == direction && keep(&r) {
			sum.Packets += r.Packets
			sum.Bytes += r.Bytes
			sum.PayloadBytes += r.PayloadBytes
			sum.WireBytes += r.WireBytes
			sum.Fragments += r.Fragments
		}
	}
	return sum
}

// TestOffloads: a transfer is counted as it would be on the wire, whether bursts
// travel whole or are cut up before.
func TestOffloads(t *testing.T) {
	const size = 20_000_000
	for _, probe := range []string{"ebpf", "afpacket"} {
		t.Run(probe, func(t *testing.T) {
			p := newPair(t, probe)
			var results [2]traffic.BulkResult
			for i := range results {
				if err := p.lab.SetOffloads(lab.TSO|lab.GSO, i%2 == 0); err != nil {
					t.Fatal(err)
				}
				results[i] = p.transfer(t, 0, size)
			}
			records := p.records(t)
			for i, r := range results {
				full := uint64(size / r.Sender.MSS) // how many more depends on timing: the sender's TCP has counted them
				for _, at := range []struct {
					netns     string
					direction flow.Direction
				}{{p.alpha.Netns, flow.Egress}, {p.beta.Netns, flow.Ingress}} {
					sum := sumOf(records, at.netns, at.direction, func(x *flow.Record) bool { return x.SrcPort == r.From.Port() })
					if sum.PayloadBytes != r.Sender.BytesSent || r.Sender.BytesSent < size {
						t.Errorf("transfer %d, %s %v: %d bytes of payload, want %d", i, at.netns, at.direction, sum.PayloadBytes, r.Sender.BytesSent)
					}
					if want := uint64(r.Sender.SegmentsOut); sum.Packets != want {
						t.Errorf("transfer %d, %s %v: %d packets, the sender's TCP counted %d segments", i, at.netns, at.direction, sum.Packets, want)
					}
					if sum.WireBytes != sum.Bytes+14*sum.Packets {
						t.Errorf("transfer %d: %d wire bytes, %d IP bytes in %d packets", i, sum.WireBytes, sum.Bytes, sum.Packets)
					}
					if sum.Packets < full {
						t.Errorf("transfer %d, %s %v: %d packets, at least %d full ones carry it", i, at.netns, at.direction, sum.Packets, full)
					}
				}
			}
		})
	}
}

// TestBigTCP: segments of more than 64 KiB have no length in their IP header.
func TestBigTCP(t *testing.T) {
	const size = 20_000_000
	p := newPair(t, "ebpf")
	for _, h := range []*lab.Host{p.alpha, p.beta} {
		err := h.Do(func() error {
			link, err := netlink.LinkByName(h.Interfaces[0].Name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetGSOMaxSize(link, 150_000); err != nil {
				return err
			}
			return netlink.LinkSetGROMaxSize(link, 150_000)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r := p.transfer(t, 0, size)
	records := p.records(t)
	for netns, direction := range map[string]flow.Direction{p.alpha.Netns: flow.Egress, p.beta.Netns: flow.Ingress} {
		sum := sumOf(records, netns, direction, func(x *flow.Record) bool { return x.SrcPort == r.From.Port() })
		if sum.PayloadBytes != r.Sender.BytesSent {
			t.Errorf("%s %v: %d bytes of payload, want %d", netns, direction, sum.PayloadBytes, r.Sender.BytesSent)
		}
	}
}

// TestFragmentsOnTheRightPorts: of a datagram of 4000 bytes only the first
// fragment has ports, and all belong to its flow.
func TestFragmentsOnTheRightPorts(t *testing.T) {
	const count, size, mtu = 50, 4000, 1500
	for _, ipv6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("ipv6 %t", ipv6), func(t *testing.T) {
			l := newLab(t)
			alpha, beta := l.Host("alpha"), l.Host("beta")
			to := beta.Addr4()
			if ipv6 {
				to = beta.Addr6()
			}
			cfg, path := agentConfig(t, "ebpf", alpha, beta)
			a := start(t, cfg)
			r, err := traffic.Datagrams(within(t, time.Minute), alpha, beta, traffic.DatagramConfig{
				To: netip.AddrPortFrom(to, 0), Count: count, Size: size,
			})
			if err != nil {
				t.Fatal(err)
			}
			waitCovered(t, a)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			want := uint64(count * traffic.Fragments(size, mtu, ipv6))
			records := readRecords(t, path)
			for netns, direction := range map[string]flow.Direction{alpha.Netns: flow.Egress, beta.Netns: flow.Ingress} {
				sum := sumOf(records, netns, direction, func(x *flow.Record) bool {
					return x.Proto == 17 && x.SrcPort == r.From[0].Port() && x.DstPort == r.Addr.Port()
				})
				if sum.Packets != want || sum.Fragments != want || sum.PayloadBytes != count*size {
					t.Errorf("%s %v: %d packets, %d fragments, %d bytes of payload; want %d, %d, %d",
						netns, direction, sum.Packets, sum.Fragments, sum.PayloadBytes, want, want, count*size)
				}
			}
		})
	}
}

// TestHeadersOnTheRightPorts: IPv4 options and IPv6 extension headers, made by
// the kernel's own stack, are walked over.
func TestHeadersOnTheRightPorts(t *testing.T) {
	padding := string([]byte{0, 0, 1, 4, 0, 0, 0, 0}) // one PadN option
	for name, c := range map[string]struct {
		ipv6    bool
		size    int
		options map[[2]int]string
	}{
		"ipv4 options": {false, 100, map[[2]int]string{
			{unix.IPPROTO_IP, unix.IP_OPTIONS}: string([]byte{1, 1, 1, 1, 1, 1, 1, 1}),
		}},
		// Hop-by-Hop, Fragment and Destination Options.
		"three extension headers": {true, 4000, map[[2]int]string{
			{unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS}: padding,
			{unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS}: padding,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			alpha, beta := l.Host("alpha"), l.Host("beta")
			cfg, path := agentConfig(t, "ebpf", alpha, beta)
			a := start(t, cfg)
			to := beta.Addr4()
			if c.ipv6 {
				to = beta.Addr6()
			}
			var local *net.UDPAddr
			err := alpha.Do(func() error {
				conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 5001)))
				if err != nil {
					return err
				}
				defer conn.Close()
				local = conn.LocalAddr().(*net.UDPAddr)
				raw, err := conn.SyscallConn()
				if err != nil {
					return err
				}
				var setErr error
				if err := raw.Control(func(fd uintptr) {
					for option, value := range c.options {
						if err := unix.SetsockoptString(int(fd), option[0], option[1], value); err != nil {
							setErr = fmt.Errorf("option %v: %w", option, err)
						}
					}
				}); err != nil || setErr != nil {
					return fmt.Errorf("%w %w", err, setErr)
				}
				for range 10 {
					// Nobody listens: refusals come back, and don't matter.
					_, _ = conn.Write(make([]byte, c.size))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			waitCovered(t, a)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			sum := sumOf(readRecords(t, path), beta.Netns, flow.Ingress, func(x *flow.Record) bool {
				return x.Proto == 17 && int(x.SrcPort) == local.Port && x.DstPort == 5001
			})
			if sum.PayloadBytes == 0 || sum.PayloadBytes%uint64(c.size) != 0 || sum.Bytes < sum.PayloadBytes+28*sum.Packets {
				t.Errorf("%d packets, %d bytes of IP, %d of payload", sum.Packets, sum.Bytes, sum.PayloadBytes)
			}
		})
	}
}

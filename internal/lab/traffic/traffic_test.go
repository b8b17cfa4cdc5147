package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
)

func up(t *testing.T, topology string) *lab.Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	l, err := lab.Up(lab.Config{Topology: topology, Prefix: fmt.Sprintf("tr%d-", os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// addrs are the host's addresses of both families.
func addrs(h *lab.Host) map[string]netip.Addr {
	return map[string]netip.Addr{"ipv4": h.Addr4(), "ipv6": h.Addr6()}
}

// kernelCounts is the judge: what the kernel of a host counted, by names of
// snmp(7) and of /proc/net/snmp6.
func kernelCounts(t *testing.T, h *lab.Host) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	out, err := h.Run(t.Context(), "cat", "/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if _, err := strconv.Atoi(strings.TrimPrefix(fields[1], "-")); err != nil {
			names = fields
			continue
		}
		for i, f := range fields[1:] {
			n, _ := strconv.ParseUint(f, 10, 64) // MaxConn is -1
			counts[strings.TrimSuffix(fields[0], ":")+names[i+1]] = n
		}
	}
	out, err = h.Run(t.Context(), "cat", "/proc/net/snmp6")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if counts[fields[0]], err = strconv.ParseUint(fields[1], 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return counts
}

// grew compares how much a kernel counter grew.
func grew(t *testing.T, before, after map[string]uint64, want map[string]uint64) {
	t.Helper()
	for name, n := range want {
		if _, ok := after[name]; !ok {
			t.Errorf("the kernel has no counter %s", name)
		}
		if got := after[name] - before[name]; got != n {
			t.Errorf("%s grew by %d, want %d", name, got, n)
		}
	}
}

func TestDatagrams(t *testing.T) {
	l := up(t, "chain")
	alpha, beta := l.Host("alpha"), l.Host("beta")
	for family, addr := range addrs(beta) {
		for _, size := range []int{traffic.MinDatagram, 1000, 4000} {
			t.Run(fmt.Sprint(family, " ", size), func(t *testing.T) {
				const count, flows = 500, 7
				before, sentBefore := kernelCounts(t, beta), kernelCounts(t, alpha)
				r, err := traffic.Datagrams(t.Context(), alpha, beta, traffic.DatagramConfig{
					To: netip.AddrPortFrom(addr, 0), Count: count, Size: size, Flows: flows,
				})
				if err != nil {
					t.Fatal(err)
				}
				if r.SentPackets != count || r.Distinct != count || r.ReceivedPackets != count || r.Duplicates+r.Reordered != 0 ||
					r.SentBytes != uint64(count*size) || r.ReceivedBytes != r.SentBytes || len(r.From) != flows || len(r.Delays) != count {
					t.Errorf("result %+v", r.Amount)
				}
				after, sentAfter := kernelCounts(t, beta), kernelCounts(t, alpha)
				fragments := uint64(traffic.Fragments(size, 1500, addr.Is6()))
				if fragments > 1 != (size == 4000) {
					t.Errorf("%d bytes fall into %d fragments", size, fragments)
				}
				made := fragments * count
				if fragments == 1 {
					made = 0
				}
				if addr.Is6() {
					grew(t, before, after, map[string]uint64{"Udp6InDatagrams": count, "Ip6ReasmReqds": made})
					grew(t, sentBefore, sentAfter, map[string]uint64{"Udp6OutDatagrams": count, "Ip6FragCreates": made})
				} else {
					grew(t, before, after, map[string]uint64{"UdpInDatagrams": count, "IpReasmReqds": made})
					grew(t, sentBefore, sentAfter, map[string]uint64{"UdpOutDatagrams": count, "IpFragCreates": made})
				}
			})
		}
	}
}

func TestBulk(t *testing.T) {
	l := up(t, "pair")
	alpha, beta := l.Host("alpha"), l.Host("beta")
	for family, addr := range addrs(beta) {
		t.Run(family, func(t *testing.T) {
			const bytes = 20_000_000
			before := kernelCounts(t, alpha)
			r, err := traffic.Bulk(t.Context(), alpha, beta, traffic.BulkConfig{To: netip.AddrPortFrom(addr, 0), Bytes: bytes})
			if err != nil {
				t.Fatal(err)
			}
			if r.Bytes != bytes || r.Sender.BytesSent-uint64(r.Sender.Retransmits)*uint64(r.Sender.MSS) > bytes || r.Rate() <= 0 || r.Addr.Addr() != addr {
				t.Errorf("result %+v", r)
			}
			after := kernelCounts(t, alpha)
			grew(t, before, after, map[string]uint64{
				// A segment sent again is counted apart.
				"TcpOutSegs": uint64(r.Sender.SegmentsOut - r.Sender.Retransmits), "TcpInSegs": uint64(r.Sender.SegmentsIn),
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := traffic.Bulk(ctx, alpha, beta, traffic.BulkConfig{To: netip.AddrPortFrom(beta.Addr4(), 0), Bytes: 1 << 40}); err == nil {
		t.Error("a transfer with a context that is done succeeded")
	}
	if _, err := traffic.Bulk(t.Context(), alpha, beta, traffic.BulkConfig{To: netip.MustParseAddrPort("192.0.2.1:1"), Bytes: 1}); err == nil {
		t.Error("a transfer to a host that does not exist succeeded")
	}
}

func TestRequests(t *testing.T) {
	l := up(t, "pair")
	alpha, beta := l.Host("alpha"), l.Host("beta")
	const clients, requests = 4, 5
	for _, network := range []string{"tcp", "udp"} {
		for family, addr := range addrs(beta) {
			t.Run(network+" "+family, func(t *testing.T) {
				const think = 30 * time.Millisecond
				service, err := traffic.Serve(t.Context(), beta, traffic.ServiceConfig{
					Network: network, Listen: netip.AddrPortFrom(addr, 0), Think: think,
				})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				r, err := traffic.Request(t.Context(), alpha, traffic.RequestConfig{
					Network: network, To: service.Addr(), Clients: clients, Requests: requests, RequestSize: 100, ResponseSize: 3000,
				})
				if err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				if err := service.Close(); err != nil {
					t.Fatal(err)
				}
				const n = clients * requests
				s := service.Amount()
				if r.Requests != n || r.Lost != 0 || len(r.Latencies) != n || r.SentBytes != n*100 || r.ReceivedBytes != n*3000 {
					t.Errorf("client: %+v", r.Amount)
				}
				if s.SentBytes != r.ReceivedBytes || s.ReceivedBytes != r.SentBytes || len(service.Thought()) != n {
					t.Errorf("client %+v, server %+v", r.Amount, s)
				}
				if network == "udp" && (r.SentPackets != n || r.ReceivedPackets != n || s.SentPackets != n || s.ReceivedPackets != n) {
					t.Errorf("client %+v, server %+v", r.Amount, s)
				}
				// The client's SYN reaches a listener, the answer to it counts on neither side.
				if network == "tcp" && (s.ReceivedPackets != r.SentPackets || r.ReceivedPackets != s.SentPackets+clients || s.SentPackets < n) {
					t.Errorf("client %+v, server %+v", r.Amount, s)
				}
				if fastest := r.Latencies.Percentile(1); fastest < think {
					t.Errorf("an answer after %v, before the service had thought %v", fastest, think)
				}
				if median := service.Thought().Median(); median < think || median > r.Latencies.Median() {
					t.Errorf("the service thought %v, want %v; requests took %v", median, think, r.Latencies.Median())
				}
				var waited time.Duration // clients that take turns do not wait for longer than all takes
				for _, latency := range r.Latencies {
					waited += latency
				}
				if waited < 3*took/2 {
					t.Errorf("%d requests of %d clients took %v, all together %v: they do not run at the same time", n, clients, waited, took)
				}
			})
		}
	}
}

func TestRequestsThatAreLost(t *testing.T) {
	l := up(t, "pair")
	// Nothing comes back from a socket that nobody reads.
	service, err := traffic.Serve(t.Context(), l.Host("beta"), traffic.ServiceConfig{
		Network: "udp", Listen: netip.AddrPortFrom(l.Host("beta").Addr4(), 0), Think: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := traffic.Request(t.Context(), l.Host("alpha"), traffic.RequestConfig{
		Network: "udp", To: service.Addr(), Clients: 1, Requests: 2, RequestSize: 16, ResponseSize: 16, Timeout: 20 * time.Millisecond,
	})
	if err != nil || r.Lost != 2 || r.SentPackets != 2 || len(r.Latencies) != 0 {
		t.Errorf("%+v, %v; want two lost", r, err)
	}
}

func TestEcho(t *testing.T) {
	l := up(t, "chain")
	alpha := l.Host("alpha")
	for family, addr := range addrs(l.Host("beta")) {
		t.Run(family, func(t *testing.T) {
			before := kernelCounts(t, l.Host("beta"))
			r, err := traffic.Echo(t.Context(), alpha, traffic.EchoConfig{To: addr, Count: 20, Size: 100, ID: 77})
			if err != nil {
				t.Fatal(err)
			}
			if r.SentPackets != 20 || r.ReceivedPackets != 20 || r.SentBytes != 2000 || r.ReceivedBytes != 2000 || r.Lost != 0 || len(r.Times) != 20 {
				t.Errorf("result %+v", r)
			}
			name := map[bool]string{false: "IcmpInEchos", true: "Icmp6InEchos"}[addr.Is6()]
			grew(t, before, kernelCounts(t, l.Host("beta")), map[string]uint64{name: 20})
		})
	}
	r, err := traffic.Echo(t.Context(), alpha, traffic.EchoConfig{To: netip.MustParseAddr("10.0.4.77"), Count: 2, Timeout: 20 * time.Millisecond})
	if err != nil || r.Lost != 2 {
		t.Errorf("echo to nobody: %+v, %v; want two lost", r, err)
	}
}

func TestPercentile(t *testing.T) {
	d := traffic.Durations{5, 1, 4, 2, 3}
	for p, want := range map[float64]time.Duration{1: 1, 20: 1, 21: 2, 50: 3, 99: 5, 100: 5} {
		if got := d.Percentile(p); got != want {
			t.Errorf("percentile %v is %v, want %v", p, got, want)
		}
	}
	if got := (traffic.Durations{}).Median(); got != 0 {
		t.Errorf("median of nothing is %v", got)
	}
}

func TestRefusesImpossible(t *testing.T) {
	self := here{}
	if _, err := traffic.Serve(t.Context(), self, traffic.ServiceConfig{Network: "sctp"}); err == nil {
		t.Error("a service over sctp")
	}
	if _, err := traffic.Request(t.Context(), self, traffic.RequestConfig{RequestSize: 15, ResponseSize: 16}); err == nil {
		t.Error("a request of 15 bytes")
	}
	if _, err := traffic.Datagrams(t.Context(), self, self, traffic.DatagramConfig{Size: 65508}); err == nil {
		t.Error("a datagram of 65508 bytes")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := traffic.Echo(ctx, self, traffic.EchoConfig{To: netip.MustParseAddr("127.0.0.1"), Count: 1}); err == nil {
		t.Error("an echo with a context that is done")
	}
}

// here is the calling namespace.
type here struct{}

func (here) Do(fn func() error) error { return fn() }

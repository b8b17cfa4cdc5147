package balance

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
)

// Addresses of services, which backends have on their loopback interface.
var (
	vip4 = netip.MustParseAddr("10.9.9.9")
	vip6 = netip.MustParseAddr("fd09::9")
)

// scene is a client behind a balancer, which routes to backends, each on a link of its own. One agent's programs serve them
// all: numbers of interfaces differ.
type scene struct {
	*Balancer
	dp       *datapath.Datapath
	client   *lab.Host
	lb       *lab.Host
	backends []*lab.Host
	ifaces   map[string]flow.Iface
}

var nextIndex atomic.Uint32

func run(t testing.TB, h *lab.Host, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		if words := strings.Fields(line); len(words) > 0 {
			if _, err := h.Run(context.Background(), words...); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
}

// connect makes a link between hosts, with addresses .1 and .2 of prefixes.
func connect(t testing.TB, a, b *lab.Host, nameA, nameB, net4, net6 string) (indexA, indexB uint32) {
	t.Helper()
	indexA, indexB = 1000+nextIndex.Add(1), 1000+nextIndex.Add(1)
	run(t, a, fmt.Sprintf("ip link add %s index %d type veth peer name %s netns %s index %d", nameA, indexA, nameB, b.Netns, indexB))
	for _, end := range []struct {
		h    *lab.Host
		name string
		n    int
	}{{a, nameA, 1}, {b, nameB, 2}} {
		run(t, end.h, fmt.Sprintf(`ip addr add %s.%d/24 dev %s
			ip addr add %s::%d/64 dev %s nodad
			ip link set %s up
			ethtool -K %s gro on tx off`, net4, end.n, end.name, net6, end.n, end.name, end.name, end.name))
	}
	return indexA, indexB
}

// newScene makes so many backends.
func newScene(t testing.TB, backends int, cfg Config) *scene {
	t.Helper()
	s := &scene{client: labtest.UpHost(t), lb: labtest.UpHost(t), ifaces: map[string]flow.Iface{}}
	type end struct {
		h     *lab.Host
		name  string
		index uint32
	}
	run(t, s.lb, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	c, _ := connect(t, s.lb, s.client, "c", "e", "10.1.0", "fd01:0")
	run(t, s.client, "ip route add default via 10.1.0.1\nip -6 route add default via fd01:0::1")
	ends := []end{{s.lb, "c", c}}
	for n := range backends {
		h := labtest.UpHost(t)
		s.backends = append(s.backends, h)
		a, b := connect(t, s.lb, h, fmt.Sprint("b", n), fmt.Sprint("d", n), fmt.Sprint("10.2.", n), fmt.Sprintf("fd02:%x", n+1))
		run(t, h, fmt.Sprintf(`ip addr add %s/32 dev lo
			ip addr add %s/128 dev lo nodad
			ip route add default via 10.2.%d.1
			ip -6 route add default via fd02:%x::1`, vip4, vip6, n, n+1))
		ends = append(ends, end{s.lb, fmt.Sprint("b", n), a}, end{h, fmt.Sprint("d", n), b})
	}
	cfg.Hints = true
	cfg.Clients = func(name string) bool { return name == "c" || strings.HasPrefix(name, "b") }
	cfg.Unwraps = func(name string) bool { return strings.HasPrefix(name, "d") }
	if cfg.Connections == 0 {
		cfg.Connections, cfg.NewPerSecond, cfg.Idle = 8192, 100_000, time.Hour
	}
	if cfg.Sources == nil {
		cfg.Sources = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd02::/16")}
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s.Balancer = New(cfg, log)
	s.dp = datapath.New(datapath.Config{MaxEntries: max(1024, cfg.Connections), RingSize: 4096 * 16, Stages: []*datapath.Stage{
		hints.NewReader(&hints.Config{Use: "auto"}, slog.New(slog.DiscardHandler)).Stage(), s.Stage(),
	}}, log)
	if err := s.dp.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(s.dp.Close)
	for _, e := range ends {
		iface := flow.NewIface(0, e.index)
		if _, err := s.dp.Attach(datapath.Target{Iface: iface, Name: e.name, Do: e.h.Do}); err != nil {
			t.Fatalf("%+v", err)
		}
		s.ifaces[e.name] = iface
	}
	return s
}

// addr is the address of a backend.
func addr(n int, ipv6 bool) netip.Addr {
	if ipv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd02:%x::2", n+1))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.2.%d.2", n))
}

// serviceOf is a service of all backends.
func (s *scene) serviceOf(vip netip.Addr, port uint16, proto uint8, how Forwarding, outer6 bool) Service {
	one := Service{Name: fmt.Sprint(vip, "-", port), Address: Address{vip, proto, port}, Forwarding: how, None: NoneDrop}
	for n := range s.backends {
		one.Backends = append(one.Backends, Backend{Addr: addr(n, outer6), Weight: 1})
	}
	return one
}

// apply has the balancer serve, once the neighbours are known.
func (s *scene) apply(t testing.TB, services ...Service) {
	t.Helper()
	if err := s.Apply(services, func(Address, netip.Addr) bool { return true }); err != nil {
		t.Fatal(err)
	}
}

func listenTCP(t testing.TB, h *lab.Host, port int) (l net.Listener) {
	t.Helper()
	if err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return l
}

// serveHTTP has each backend answer with its number.
func (s *scene) serveHTTP(t testing.TB, port int) {
	t.Helper()
	for n, h := range s.backends {
		l := listenTCP(t, h, port)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			size, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "backend %d got %d", n, size)
		})}
		go server.Serve(l) //nolint:errcheck // ends with the listener
		t.Cleanup(func() { server.Close() })
	}
}

// stateOf is a service by its name.
func (s *scene) stateOf(t testing.TB, name string) ServiceState {
	t.Helper()
	all, err := s.Services()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("no service %s: %+v", name, all)
	return ServiceState{}
}

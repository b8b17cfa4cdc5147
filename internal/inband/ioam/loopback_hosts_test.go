package ioam

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// loopbackChain is alpha – athos – porthos – aramis – beta, nodes 1 to 5: alpha asks for copies of what it sends to beta, where
// the namespace ends.
type loopbackChain struct {
	*domain
	trace  *wire.Trace
	source string // who asks
}

// transit is where the routers do their work; others: what else hosts run in the same programs.
func newLoopbackChain(t *testing.T, transit Transit, others map[string]*datapath.Stage) *loopbackChain {
	c := &loopbackChain{
		domain: &domain{Lab: labtest.New(t, lab.Config{Topology: "chain", MTU: 1500}), t: t, nodes: map[string]*Registrar{}, with: map[string]Node{}},
		trace:  asking(t, spaceA, wire.LoopbackTraceType, 40),
		source: "alpha",
	}
	for i, name := range []string{"alpha", "athos", "porthos", "aramis", "beta"} {
		n := Node{ID: uint32(i + 1), Loopback: Loopback{Every: 1, Rate: 1 << 20}, Namespaces: []Namespace{{ID: spaceA, Remove: name == "beta"}}}
		for k, iface := range c.Host(name).Interfaces {
			n.Interfaces = append(n.Interfaces, Interface{Name: iface.Name, ID: uint16(10*i + k), WideID: uint32(10*i + k), Role: RoleBoth})
		}
		if name == "alpha" {
			n.ClosedDomain = true // datagrams, too
			in := insertionTo(netip.PrefixFrom(c.Host("beta").Addr6(), 128).String(), c.trace)
			in.Policy.Interface = "*"
			n.Insertions = []Insertion{in}
		}
		cfg := Config{Time: wire.POSIX, Transit: TransitTC, Border: BorderDrop}
		if len(n.Interfaces) > 1 {
			cfg.Transit = transit
		}
		var more []*datapath.Stage
		if s := others[name]; s != nil {
			more = append(more, s)
		}
		c.with[name] = n
		c.nodes[name] = attachNode(t, c.Host(name), cfg, n, more...)
	}
	return c
}

// send sends datagrams, and returns how many arrived.
func (c *loopbackChain) send(count int) int {
	c.t.Helper()
	u, err := traffic.Datagrams(c.t.Context(), c.Host("alpha"), c.Host("beta"), traffic.DatagramConfig{To: netip.AddrPortFrom(c.Host("beta").Addr6(), 9), Count: count, Size: 100, Flows: 1})
	if err != nil {
		c.t.Fatal(err)
	}
	return int(u.Distinct)
}

// ways are the hops of copies that came back, and how many of them were on the way there.
func (c *loopbackChain) ways() (out []string) {
	c.t.Helper()
	for _, p := range c.nodes[c.source].Paths() {
		out = append(out, fmt.Sprintf("%s/%d", p.Nodes(), p.Reached))
	}
	slices.Sort(out)
	return out
}

func (c *loopbackChain) await(want ...string) {
	c.t.Helper()
	slices.Sort(want)
	await.Success(c.t, func() error {
		if got := c.ways(); !slices.Equal(got, want) {
			return fmt.Errorf("copies of %v, want %v", got, want)
		}
		return nil
	})
}

// Copies come back from each hop, also where packets get lost further on; none reaches an application, none asks for another
// one, and packets arrive as without.
func TestLoopbackOnRoute(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: see scripts/setup")
	}
	c := newLoopbackChain(t, TransitTC, nil)
	alpha, beta := c.Host("alpha"), c.Host("beta")
	application := noNextHeader(t, alpha)
	path, stop := marktest.Record(t, alpha)
	// Packets get lost behind porthos.
	undo := c.attach("aramis", "to-porthos", c.program(swallowing(beta.Addr6().String())), ebpf.AttachTCXIngress, link.Head())
	if got := c.send(10); got != 0 {
		t.Errorf("%d datagrams arrived through a link that loses all", got)
	}
	c.await("1-2-1/2", "1-2-3-2-1/3")
	undo()
	if got := c.send(10); got != 10 {
		t.Errorf("%d of 10 datagrams arrived", got)
	}
	c.await("1-2-1/2", "1-2-3-2-1/3", "1-2-3-4-3-2-1/4", "1-2-3-4-5-4-3-2-1/5")
	c.copiesOfSegments()
	stop()
	if n, _, err := unix.Recvfrom(application, make([]byte, 64), 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a socket received %d bytes of a copy: %v", n, err)
	}
	copiesInTshark(t, path, alpha.Addr6().String())
	c.flood()
}

// settled waits until each copy that nodes sent has come back, and checks that nothing else was made of them.
func (c *loopbackChain) settled() {
	c.t.Helper()
	await.Success(c.t, func() error {
		made, sent := uint64(0), uint64(0)
		for _, r := range c.nodes {
			n, unsent, err := r.CopiesSent()
			if err != nil || unsent > 0 {
				c.t.Fatalf("%d copies unsent: %v", unsent, err)
			}
			made, sent = made+stats(c.t, r).Looped, sent+n
		}
		if back := stats(c.t, c.nodes[c.source]).Returned; made != sent || back != sent {
			return fmt.Errorf("%d copies made, %d sent, %d came back", made, sent, back)
		}
		return nil
	})
	if s := stats(c.t, c.nodes[c.source]); s.Looped > 0 {
		c.t.Errorf("%s made %d copies of copies", c.source, s.Looped)
	}
}

// noFaults: hosts could use all that they received, and all that was to be sent was.
func (c *loopbackChain) noFaults() {
	c.t.Helper()
	for _, h := range c.Hosts() {
		if f := faults(c.t, h); f != "" {
			c.t.Errorf("%s:\n%s", h.Name, f)
		}
		if why := reasons(c.t, c.nodes[h.Name]); why["not_inserted_broken"]+why["border_dropped"]+why["loopback_lost"]+why["loopback_type"]+why["loopback_address"] > 0 {
			c.t.Errorf("%s: %v", h.Name, why)
		}
	}
}

// flood: where every packet asks, and nodes answer one in 100, they do not send more than that.
func (c *loopbackChain) flood() {
	c.t.Helper()
	for name, n := range c.with {
		n.Loopback.Every = 100
		c.must(c.nodes[name].Apply(n))
	}
	before := map[string]Stats{}
	for _, name := range []string{"athos", "porthos", "aramis", "beta"} {
		before[name] = stats(c.t, c.nodes[name])
	}
	if got := c.send(3000); got < 2900 { // a busy machine loses some
		c.t.Errorf("%d of 3000 datagrams arrived", got)
	}
	for name, was := range before {
		now := stats(c.t, c.nodes[name])
		// Each CPU has saved 64 at most.
		copies, filled := now.Looped-was.Looped, now.Written-was.Written
		if why := reasons(c.t, c.nodes[name]); copies > filled/100+2*64 || why["loopback_not_sampled"] < 2000 {
			c.t.Errorf("%s: %d copies of %d traces, %v", name, copies, filled, why)
		}
	}
	c.settled()
}

// noNextHeader is a socket that receives packets without payload, which only a raw one does.
func noNextHeader(t *testing.T, h *lab.Host) (fd int) {
	t.Helper()
	if err := h.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_NONE)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// copiesInTshark: tshark reads copies without a warning: from each node, to the source, without the flag and without payload.
func copiesInTshark(t *testing.T, path, to string) {
	t.Helper()
	out, err := exec.Command("tshark", "-r", path, "-Y", "ipv6.opt.ioam.trace.ns && ipv6.dst == "+to, "-T", "fields",
		"-e", "ipv6.hopopts.nxt", "-e", "ipv6.opt.ioam.trace.flag.l", "-e", "ipv6.opt.ioam.trace.node.id", "-e", "_ws.expert.message").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f := strings.Split(line, "\t")
		if len(f) < 3 || f[0] != "59" || f[1] != "0" && f[1] != "False" || len(f) > 3 && f[3] != "" {
			t.Fatalf("tshark: %q", line)
		}
		seen[strings.ReplaceAll(f[2], "0x00000", "")]++
	}
	for _, want := range []string{"2,1", "2,3,2,1", "2,3,4,3,2,1", "2,3,4,5,4,3,2,1"} {
		if seen[want] == 0 {
			t.Errorf("tshark saw no copy with the nodes %s: %v", want, seen)
		}
	}
}

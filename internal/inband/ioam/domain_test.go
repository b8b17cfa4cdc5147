package ioam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// domain is the chain alpha – athos – porthos – aramis – beta, both ways: hosts alpha and beta insert spaceA into what
// they send and remove it from what arrives; routers athos and aramis put what they forward behind an outer header
// with spaceB, and remove the other one's. Linux alone is on porthos.
type domain struct {
	*lab.Lab
	t     *testing.T
	nodes map[string]*Registrar
	with  map[string]Node // what each node is with insertions
}

func newDomain(t *testing.T) *domain {
	t.Helper()
	d := &domain{Lab: labtest.New(t, lab.Config{Topology: "chain", MTU: 1500}), t: t, nodes: map[string]*Registrar{}, with: map[string]Node{}}
	d.setMTU(1700)
	for name, to := range map[string]string{"alpha": "beta", "beta": "alpha"} {
		n := node()
		n.Namespaces[0].Remove = true
		n.Interfaces = []Interface{{Name: d.Host(name).Interfaces[0].Name, ID: toID, WideID: toWide, Role: RoleBoth}}
		in := trace72(t)
		in.Policy.To = netip.PrefixFrom(d.Host(to).Addr6(), 128)
		in.Options = append(in.Options, edge(spaceA))
		n.Insertions = []Insertion{in}
		d.with[name] = n
	}
	for name, way := range map[string][3]string{"athos": {"alpha", "beta", "aramis"}, "aramis": {"beta", "alpha", "athos"}} {
		const exit = "to-porthos"
		n := node()
		n.Namespaces[1].Remove = true
		n.Interfaces = []Interface{{Name: "to-" + way[0], ID: fromID, WideID: fromWide, Role: RoleBoth}, {Name: exit, ID: toID, WideID: toWide, Role: RoleBoth}}
		n.Insertions = []Insertion{{
			Name: "tunnel", Take: 1, Of: 1, Policy: policy.Policy{To: netip.PrefixFrom(d.Host(way[1]).Addr6(), 128), Interface: exit},
			Tunnel:  &Tunnel{Source: netip.MustParseAddr(addressOf(t, d.Host(name), exit)), Destination: netip.MustParseAddr(addressOf(t, d.Host(way[2]), exit))},
			Options: []wire.Body{mustTrace(t, spaceB, 64)},
		}}
		d.with[name] = n
	}
	for name, n := range d.with {
		n.Insertions = nil
		d.nodes[name] = attachNode(t, d.Host(name), Config{Time: wire.POSIX, Transit: TransitTC}, n)
	}
	return d
}

// setMTU sets that of the links between the routers.
func (d *domain) setMTU(mtu int) {
	d.t.Helper()
	for _, end := range [][2]string{{"athos", "to-porthos"}, {"porthos", "to-athos"}, {"porthos", "to-aramis"}, {"aramis", "to-porthos"}} {
		if err := d.Host(end[0]).Do(func() error { return marktest.SetMTU(end[1], mtu) }); err != nil {
			d.t.Fatal(err)
		}
	}
}

// insert lets all nodes insert, k of n packets, or none.
func (d *domain) insert(take, of uint32) {
	d.t.Helper()
	for name, n := range d.with {
		n.Insertions = slices.Clone(n.Insertions)
		n.Insertions[0].Take, n.Insertions[0].Of = take, of
		if take == 0 {
			n.Insertions = nil
		}
		emptyMaps(d.t, d.nodes[name], "mark_paths", "ioam_guards")
		if err := d.nodes[name].Apply(n); err != nil {
			d.t.Fatal(err)
		}
	}
}

// exchange moves bytes both ways by TCP, UDP and ICMPv6, and returns how long TCP took and what it sent again.
func (d *domain) exchange(what string, bytes int64) (took time.Duration, resent uint32) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	alpha, beta := d.Host("alpha"), d.Host("beta")
	for _, way := range [][2]*lab.Host{{alpha, beta}, {beta, alpha}} {
		r, err := traffic.Bulk(ctx, way[0], way[1], traffic.BulkConfig{To: netip.AddrPortFrom(way[1].Addr6(), 7000), Bytes: bytes})
		if err != nil {
			d.t.Fatalf("%s, %s sends: %v", what, way[0].Name, err)
		}
		took, resent = took+r.Duration, resent+r.Sender.Retransmits
		u, err := traffic.Datagrams(ctx, way[0], way[1], traffic.DatagramConfig{To: netip.AddrPortFrom(way[1].Addr6(), 9), Count: 30, Size: 200, Flows: 2})
		if err != nil || u.Distinct != 30 {
			d.t.Errorf("%s, %s sends: %d datagrams of 30 arrived, %v", what, way[0].Name, u.Distinct, err)
		}
	}
	if e, err := traffic.Echo(ctx, alpha, traffic.EchoConfig{To: beta.Addr6(), Count: 3, Size: 56}); err != nil || e.Lost > 0 {
		d.t.Errorf("%s: %+v, %v", what, e, err)
	}
	return took, resent
}

// Whatever the path, the offloads and the other programs are, connections go on with options that hosts insert and
// remove, and with those that routers put around what they forward, as they do without. One lab, and one control
// before each case: loading four nodes takes longer than the traffic.
func TestGuardedDomain(t *testing.T) {
	d := newDomain(t)
	for _, c := range d.cases() {
		if c.begin != nil {
			c.begin()
		}
		d.insert(0, 1)
		plain, _ := d.exchange(c.name+", without options", c.bytes)
		d.insert(1, 1)
		before, faults := d.counts(), d.faults()
		learning, _ := d.exchange(c.name, c.bytes)
		took, resent := d.exchange(c.name+", again", c.bytes)
		for try := 0; took > plain+600*time.Millisecond && try < 5; try++ { // a busy machine is slow once
			took, resent = d.exchange(c.name+", again", c.bytes)
		}
		after := d.counts()
		t.Logf("%s: %v without, %v, %v; %d sent again; %v", c.name, plain, learning, took, resent, after.since(before))
		if learning > plain+c.learns+3*time.Second || took > plain+600*time.Millisecond {
			t.Errorf("%s: without options %v, first %v, then %v", c.name, plain, learning, took)
		}
		if moved := marktest.NewFaults(faults, d.faults()); len(moved) > 0 {
			t.Errorf("%s: packets that could not be used: %v", c.name, moved)
		}
		if now := after.since(before); now["inserted"] < 10 || now["removed"] < 10 || now["unwrapped"] < c.unwrapped || now["not_inserted_broken"]+now["not_removed"]+now["broken"] > 0 {
			t.Errorf("%s: %v", c.name, now)
		}
		if c.end != nil {
			c.end()
		}
	}
	d.counted()
	d.errorsGoUnmarked()
	d.silentEnd()
	d.narrowTunnel()
}

// condition is what connections must survive.
type condition struct {
	name       string
	bytes      int64
	unwrapped  uint64        // packets at least that routers put behind an outer header
	learns     time.Duration // beyond three seconds, what it costs once to learn of the path
	begin, end func()
}

func (d *domain) cases() []condition {
	off := func(name string, set lab.Offload) condition {
		return condition{
			name: name + " off", bytes: 1 << 20, unwrapped: 10,
			begin: func() { d.must(d.SetOffloads(set, false)) },
			end:   func() { d.must(d.SetOffloads(set, true)) },
		}
	}
	var cleanup []func()
	undo := func() {
		for _, f := range cleanup {
			f()
		}
		cleanup = nil
	}
	attach := func(host, iface string, p *ebpf.Program, a ebpf.AttachType, anchor link.Anchor) {
		cleanup = append(cleanup, d.attach(host, iface, p, a, anchor))
	}
	big := func(size int) func() {
		return func() {
			for _, name := range []string{"alpha", "beta"} {
				h := d.Host(name)
				marktest.Command(d.t, h, "ip", "link", "set", "dev", h.Interfaces[0].Name, "gso_max_size", fmt.Sprint(size), "gro_max_size", fmt.Sprint(size))
			}
		}
	}
	return []condition{
		{name: "offloads as they are", bytes: 2 << 20, unwrapped: 10, end: func() { d.bursts("checksums left to the device", 0) }},
		off("TSO", lab.TSO), off("GSO", lab.TSO|lab.USO|lab.GSO),
		{
			name: "checksums off", bytes: 1 << 20, unwrapped: 10,
			begin: func() { d.must(d.SetOffloads(lab.TxChecksum, false)) },
			end: func() {
				d.bursts("checksums off", 0)
				d.must(d.SetOffloads(lab.VethDefault, true))
			},
		},
		{
			name: "GRO on", bytes: 1 << 20, unwrapped: 10,
			begin: func() { d.must(d.SetOffloads(lab.GRO, true)) },
			end:   func() { d.must(d.SetOffloads(lab.GRO, false)) },
		},
		{
			name: "options of the socket", bytes: 1 << 20, unwrapped: 10,
			end: func() {
				for _, header := range []int{unix.IPV6_HOPOPTS, unix.IPV6_DSTOPTS} { // eight bytes of padding
					transferWith(d.t, d.Host("alpha"), d.Host("beta"), header, []byte{0, 0, 1, 4, 0, 0, 0, 0}, 1<<20)
					d.bursts("options of the socket", header)
				}
			},
		},
		{
			name: "other programs in front and behind", bytes: 1 << 20, unwrapped: 10, learns: 5 * time.Second,
			begin: func() {
				pulls, drops := d.program(pulling), d.program(dropping)
				for host, iface := range map[string]string{"alpha": "to-athos", "aramis": "to-porthos"} {
					for _, a := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
						attach(host, iface, pulls, a, link.Head())
						attach(host, iface, drops, a, link.Tail())
					}
				}
			},
			end: undo,
		},
		{
			name: "BIG TCP", bytes: 8 << 20, unwrapped: 10, begin: big(185000),
			end: func() {
				d.counted()
				big(65536)()
			},
		},
		{
			name: "Packet Too Big", bytes: 1 << 20, learns: 15 * time.Second, // Linux ignores those about outer headers
			begin: func() {
				for _, end := range [][2]string{{"porthos", "to-aramis"}, {"aramis", "to-porthos"}} {
					d.must(d.Host(end[0]).Do(func() error { return marktest.SetMTU(end[1], 1400) }))
				}
			},
			end: func() {
				d.setMTU(1700)
				for _, h := range d.Hosts() { // what it knows of paths
					marktest.Command(d.t, h, "ip", "-6", "route", "flush", "cache")
				}
			},
		},
		{
			name: "long packets are dropped", bytes: 1 << 20, learns: 15 * time.Second,
			begin: func() {
				d.must(d.SetOffloads(lab.VethDefault, false)) // bursts do not show how long their segments are
				long := d.program(longer)
				attach("porthos", "to-athos", long, ebpf.AttachTCXIngress, link.Head())
				attach("porthos", "to-aramis", long, ebpf.AttachTCXIngress, link.Head())
			},
			end: func() {
				undo()
				d.must(d.SetOffloads(lab.VethDefault, true))
			},
		},
		{
			name: "a route of 1400", bytes: 1 << 20,
			begin: func() { d.routes("add", "mtu", "1400") },
			end:   func() { d.routes("del") },
		},
		{
			name: "a clamped MSS", bytes: 1 << 20,
			begin: func() { d.routes("add", "advmss", "1300") },
			end:   func() { d.routes("del") },
		},
		{name: "tunnels of the hosts", bytes: 1 << 20, unwrapped: 10, end: d.tunnels},
	}
}

func (d *domain) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// routes adds or deletes routes of the hosts to each other.
func (d *domain) routes(verb string, attributes ...string) {
	d.t.Helper()
	for _, way := range [][3]string{{"alpha", "beta", "athos"}, {"beta", "alpha", "aramis"}} {
		h, to, via := d.Host(way[0]), d.Host(way[1]).Addr6(), d.Host(way[2])
		marktest.Command(d.t, h, append([]string{"ip", "-6", "route", verb, to.String() + "/128", "via", addressOf(d.t, via, "to-"+way[0])}, attributes...)...)
	}
}

// bursts sends UDP_SEGMENT bursts both ways; header: of an option of the socket, or 0.
func (d *domain) bursts(what string, header int) {
	d.t.Helper()
	for _, way := range [][2]string{{"alpha", "beta"}, {"beta", "alpha"}} {
		err := marktest.Bursts(d.t, d.Host(way[0]), d.Host(way[1]), 20, 8, 1000, header)
		if err != nil && !errors.Is(err, unix.EIO) { // kernels before 6.11 refuse to send some
			d.t.Errorf("bursts, %s: %v", what, err)
		}
	}
}

// tunnels sends in tunnels between the hosts, whose outer packets get options.
func (d *domain) tunnels() {
	alpha, beta := d.Host("alpha"), d.Host("beta")
	for n, kind := range [][]string{{"vxlan", "id", "7", "dstport", "4789"}, {"ip6gre"}, {"ip6tnl", "mode", "ip6ip6"}} {
		const name = "inner"
		inner := [2]string{fmt.Sprintf("fd00:%d::1", n), fmt.Sprintf("fd00:%d::2", n)}
		made := true
		for i, h := range []*lab.Host{alpha, beta} {
			peer := []*lab.Host{beta, alpha}[i]
			argv := append([]string{"ip", "link", "add", name, "type"}, kind...)
			if _, err := h.Run(d.t.Context(), append(argv, "local", h.Addr6().String(), "remote", peer.Addr6().String())...); err != nil {
				d.t.Logf("the kernel has no %s: %v", kind[0], err)
				made = false
				break
			}
			marktest.Command(d.t, h, "ip", "addr", "add", inner[i]+"/64", "dev", name, "nodad")
			marktest.Command(d.t, h, "ip", "link", "set", name, "up")
		}
		if made {
			for i, way := range [][2]*lab.Host{{beta, alpha}, {alpha, beta}} {
				r, err := traffic.Bulk(d.t.Context(), way[0], way[1], traffic.BulkConfig{To: netip.AddrPortFrom(netip.MustParseAddr(inner[i]), 0), Bytes: 1 << 20})
				if err != nil || r.Duration > 5*time.Second {
					d.t.Errorf("%s: %v, %v", kind[0], r.Duration, err)
				}
			}
		}
		for _, h := range []*lab.Host{alpha, beta} {
			_, _ = h.Run(d.t.Context(), "ip", "link", "del", name)
		}
	}
}

// Programs of others.
var (
	pulling = asm.Instructions{ // all of the packet is linear
		asm.Mov.Imm(asm.R2, 0), asm.FnSkbPullData.Call(),
		asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}
	dropping = asm.Instructions{ // one of 256 long packets
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.JLT.Imm(asm.R6, 1000, "pass"),
		asm.FnGetPrandomU32.Call(), asm.And.Imm(asm.R0, 255), asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), asm.Return(),
	}
	longer = asm.Instructions{ // packets of more than 1500 bytes
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.JGT.Imm(asm.R6, 1514, "drop"),
		asm.Mov.Imm(asm.R0, -1), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), asm.Return(),
	}
)

func (d *domain) program(code asm.Instructions) *ebpf.Program {
	d.t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: code})
	d.must(err)
	d.t.Cleanup(func() { p.Close() })
	return p
}

func (d *domain) attach(host, iface string, p *ebpf.Program, a ebpf.AttachType, anchor link.Anchor) (detach func()) {
	d.t.Helper()
	var l link.Link
	h := d.Host(host)
	d.must(h.Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: linkOf(d.t, h, iface).Index, Program: p, Attach: a, Anchor: anchor})
		return err
	}))
	return func() { l.Close() }
}

package forward

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/packet"
)

// router is a host of a lab whose packets are forwarded at XDP.
type router struct {
	*Forwarder
	dp     *datapath.Datapath
	host   *lab.Host
	ifaces []flow.Iface // in the order of the host's
	early  *ebpf.Program
}

// newRouter has a host forward between all of its interfaces.
func newRouter(t *testing.T, h *lab.Host, cfg Config) *router {
	t.Helper()
	cfg.Hints = true
	log := slog.New(slog.DiscardHandler)
	r := &router{Forwarder: New(cfg, log), host: h}
	r.dp = datapath.New(datapath.Config{MaxEntries: 1024, RingSize: 4096 * 16, Stages: []*datapath.Stage{
		service.NewReader(&service.Config{Use: "auto"}, log).Stage(), r.Stage(func(string) bool { return true }),
	}}, log)
	if err := r.dp.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(r.dp.Close)
	var err error
	if r.early, err = r.dp.Copy(datapath.Early); err != nil {
		t.Fatalf("%+v", err)
	}
	for _, i := range h.Interfaces {
		var iface flow.Iface
		if err := h.Do(func() error {
			l, err := net.InterfaceByName(i.Name)
			if err == nil {
				iface = flow.NewIface(0, uint32(l.Index))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.dp.Attach(datapath.Target{Iface: iface, Name: i.Name, Do: h.Do}); err != nil {
			t.Fatalf("%+v", err)
		}
		r.ifaces = append(r.ifaces, iface)
	}
	return r
}

// port is what is known of the n-th interface.
func (r *router) portOf(t *testing.T, n int) Port {
	t.Helper()
	all, err := r.Ports()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Iface == r.ifaces[n] {
			return p
		}
	}
	t.Fatalf("interface %d is no port: %+v", r.ifaces[n], all)
	return Port{}
}

// chain is five hosts in a row, whose ends of links take frames of XDP. checksums: these are left to the device.
func chain(t *testing.T, mtu int, checksums bool) *lab.Lab {
	t.Helper()
	l := labtest.New(t, lab.Config{Topology: "chain", MTU: mtu})
	for _, h := range l.Hosts() {
		for _, i := range h.Interfaces {
			if err := errors.Join(h.SetFeatures(i.Name, true, "rx-gro"), h.SetFeatures(i.Name, checksums, "tx-checksum-ip-generic")); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// transfer sends bytes both ways over a connection.
func transfer(t *testing.T, from, to *lab.Host, network string, bytes int64) {
	t.Helper()
	addr := to.Addr4()
	if network == "tcp6" {
		addr = to.Addr6()
	}
	var listener net.Listener
	if err := to.Do(func() (err error) {
		listener, err = net.Listen(network, net.JoinHostPort(addr.String(), "0"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer c.Close()
		_, err = io.Copy(c, io.LimitReader(c, bytes)) // sends back what it gets
		ended <- err
	}()
	err := from.Do(func() error {
		c, err := net.Dial(network, listener.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		sent := make(chan error, 1)
		go func() {
			_, err := io.Copy(c, io.LimitReader(zeros{}, bytes))
			sent <- err
		}()
		n, err := io.Copy(io.Discard, io.LimitReader(c, bytes))
		if n != bytes {
			err = errors.Join(err, io.ErrUnexpectedEOF)
		}
		return errors.Join(err, <-sent)
	})
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatalf("%s: %v", network, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestTCP: connections through the router work as before, over IPv4 and IPv6, both ways; XDP forwards nearly all of it, and
// flows on both sides count exactly that.
func TestTCP(t *testing.T) {
	l := chain(t, 1500, false)
	alpha, beta := l.Host("alpha"), l.Host("beta")
	const bytes = 2 << 20
	for _, network := range []string{"tcp4", "tcp6"} {
		transfer(t, alpha, beta, network, bytes) // the kernel
	}
	r := newRouter(t, l.Host("athos"), Config{})
	if err := r.dp.Drain(func(*flow.Delta) {}); err != nil {
		t.Fatal(err)
	}
	follow(t, r)
	before := [2]Port{r.portOf(t, 0), r.portOf(t, 1)}
	for _, p := range before {
		if p.Off != "" || p.Closed != "" || !p.V4 || !p.V6 {
			t.Fatalf("%+v", p)
		}
	}
	for _, network := range []string{"tcp4", "tcp6"} {
		transfer(t, alpha, beta, network, bytes)
	}
	counted := map[flow.Iface][2]uint64{} // of TCP, which this host has none of
	var records [2]uint64                 // packets in them that were forwarded at XDP, by direction
	trips := map[flow.Iface][2]int{}      // flows with a round trip to the responder, and to the initiator
	if err := r.dp.Drain(func(d *flow.Delta) {
		if d.Proto == packet.ProtoTCP {
			n := counted[d.Iface]
			n[d.Direction] += d.Packets
			counted[d.Iface] = n
		}
		if d.Proto == packet.ProtoTCP && d.Forwarded > 0 {
			if here := slices.Index(r.ifaces[:], d.Iface); d.Forwarded > d.Packets || here < 0 || d.Other != r.ifaces[1-here] {
				t.Errorf("%+v", d)
			}
			records[d.Direction] += d.Forwarded
		}
		if n := trips[d.Iface]; d.RTT.Responder > 0 {
			n[0]++
			if d.RTT.Initiator > 0 {
				n[1]++
			}
			trips[d.Iface] = n
		}
		if d.VNI != 0 || d.WireBytes != d.Bytes+14*d.Packets {
			t.Errorf("%+v", d)
		}
	}); err != nil {
		t.Fatal(err)
	}
	var all uint64
	for n := range 2 {
		p := r.portOf(t, n)
		all += p.Packets[0] - before[n].Packets[0]
		forwarded := p.Packets[0] - before[n].Packets[0]
		if forwarded < 2*bytes/1500 {
			t.Errorf("%s: %d packets were forwarded: %v", l.Host("athos").Interfaces[n].Name, forwarded, p.Packets)
		}
		if trips := trips[r.ifaces[n]]; trips[0] < 2 || trips[1] < 2 {
			t.Errorf("%d and %d flows have round trips", trips[0], trips[1])
		}
		if in, out := counted[r.ifaces[n]][flow.Ingress], counted[r.ifaces[1-n]][flow.Egress]; in != out || in < forwarded || in > forwarded+100 {
			t.Errorf("flows count %d at ingress and %d at egress, and %d were forwarded at XDP", in, out, forwarded)
		}
	}
	if records[flow.Ingress] != records[flow.Egress] || records[flow.Ingress] < all*9/10 || records[flow.Ingress] > all {
		t.Errorf("%d packets were forwarded at XDP, of these are %d in records", all, records)
	}
}

// pinged is what ping says of one packet: the answer, or the error, without the time.
func pinged(t *testing.T, h *lab.Host, to netip.Addr, more ...string) string {
	t.Helper()
	out, err := h.Run(t.Context(), append([]string{"ping", "-n", "-c1", "-W5", to.String()}, more...)...)
	if err != nil { // an error came
		out += err.Error()
	}
	for line := range strings.Lines(out) {
		for _, part := range []string{"From ", "bytes from", "essage too long"} {
			if strings.Contains(line, part) {
				line, _, _ = strings.Cut(line, " time=")
				return strings.TrimSpace(line)
			}
		}
	}
	return out
}

// TestErrorsAreTheKernels: a hop limit that ends at the router, and packets beyond an MTU behind it, bring the same errors as
// before.
func TestErrorsAreTheKernels(t *testing.T) {
	l := chain(t, 1500, false)
	alpha, beta, athos := l.Host("alpha"), l.Host("beta"), l.Host("athos")
	if _, err := athos.Run(t.Context(), "ip", "link", "set", athos.Interfaces[1].Name, "mtu", "1400"); err != nil {
		t.Fatal(err)
	}
	ask := func() (answers []string) {
		for _, to := range []netip.Addr{beta.Addr4(), beta.Addr6()} {
			for _, more := range [][]string{{"-t1"}, {"-t2"}, {"-t3"}, {"-t9"}, {"-s1410", "-Mdo"}} {
				answers = append(answers, strings.Join(more, " ")+": "+pinged(t, alpha, to, more...))
			}
			_, _ = alpha.Run(t.Context(), "ip", "route", "flush", "cache")
			_, _ = alpha.Run(t.Context(), "ip", "-6", "route", "flush", "cache")
		}
		return answers
	}
	want := ask()
	r := newRouter(t, athos, Config{})
	follow(t, r)
	got := ask()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("with forwarding at XDP:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	p := r.portOf(t, 0)
	if p.Packets[abiForwardResultFORWARD_TTL] < 2 || p.Packets[abiForwardResultFORWARD_TOO_BIG] == 0 || p.Packets[abiForwardResultFORWARD_DONE] == 0 {
		t.Errorf("%v", p.Packets)
	}
}

// follow has a router follow changes, as the agent does.
func follow(t *testing.T, r *router) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
}

// TestOffloadedChecksums: where senders leave checksums to the device, which a virtual one never completes, connections work,
// by the kernel.
func TestOffloadedChecksums(t *testing.T) {
	l := chain(t, 1500, true)
	r := newRouter(t, l.Host("athos"), Config{})
	follow(t, r)
	for _, network := range []string{"tcp4", "tcp6"} {
		transfer(t, l.Host("alpha"), l.Host("beta"), network, 1<<20)
	}
	for n := range 2 {
		if p := r.portOf(t, n); p.Packets[abiForwardResultFORWARD_CHECKSUM] < 1000 {
			t.Errorf("%v", p.Packets)
		}
	}
}

// TestIperf: iperf3 transfers through the router, both ways, and XDP forwards nearly all of it.
func TestIperf(t *testing.T) {
	l := chain(t, 1500, false)
	alpha, beta := l.Host("alpha"), l.Host("beta")
	r := newRouter(t, l.Host("athos"), Config{})
	follow(t, r)
	for port, c := range map[uint16]struct {
		to   netip.Addr
		port int // where the data arrive
		more []string
	}{5201: {beta.Addr4(), 0, nil}, 5202: {beta.Addr6(), 1, []string{"-R"}}} {
		before := r.portOf(t, c.port).Packets[0]
		got := labtest.Iperf(t, alpha, beta, netip.AddrPortFrom(c.to, port), c.more...)
		forwarded := r.portOf(t, c.port).Packets[0] - before
		t.Logf("%s %v: %+v, %d packets forwarded", c.to, c.more, got, forwarded)
		if got.Received < labtest.IperfBytes || forwarded < uint64(got.Received/1500) {
			t.Errorf("%s %v: %+v, %d packets forwarded: %v", c.to, c.more, got, forwarded, r.portOf(t, c.port).Packets)
		}
	}
}

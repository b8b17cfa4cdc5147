package gate

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// guard is a gate on an interface of a host.
type guard struct {
	*Gate
	dp    *datapath.Datapath
	iface flow.Iface
}

func newGuard(t *testing.T, h *lab.Host, iface string, mode Mode) *guard {
	t.Helper()
	cfg := small()
	cfg.Mode = mode
	log := slogDiscard()
	g := &guard{Gate: New(cfg, log)}
	g.dp = datapath.New(datapath.Config{MaxEntries: 64, Stages: []*datapath.Stage{g.Stage(func(name string) bool { return name == iface })}}, log)
	if err := g.dp.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(g.dp.Close)
	if err := h.Do(func() error {
		l, err := net.InterfaceByName(iface)
		if err == nil {
			g.iface = flow.NewIface(0, uint32(l.Index))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.dp.Attach(datapath.Target{Iface: g.iface, Name: iface, Do: h.Do}); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *guard) apply(t *testing.T, text string) {
	t.Helper()
	rs, _, err := rules.Parse("f", text, rules.Options{Now: time.Now()})
	if err == nil {
		err = g.Apply(rs)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// dropped is how many packets rules dropped.
func (g *guard) dropped(t *testing.T) (n uint64) {
	t.Helper()
	c, err := g.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Rules {
		n += r.Dropped
	}
	return n
}

// patience is how long something is waited for that should come, or should not.
func patience(should bool) time.Duration {
	if should {
		return await.Patience
	}
	return 300 * time.Millisecond
}

// connects reports whether a TCP connection comes about, which it should or not.
func connects(t *testing.T, from, to *lab.Host, network string, should bool) bool {
	t.Helper()
	var listener net.Listener
	addr := to.Addr4()
	if network == "tcp6" {
		addr = to.Addr6()
	}
	if err := to.Do(func() (err error) {
		listener, err = net.Listen(network, net.JoinHostPort(addr.String(), "0"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err := from.Do(func() error {
		c, err := net.DialTimeout(network, listener.Addr().String(), patience(should))
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if err != nil && !os.IsTimeout(err) {
		t.Fatal(err)
	}
	return err == nil
}

func pings(t *testing.T, from, to *lab.Host, should bool) bool {
	t.Helper()
	_, err := from.Run(t.Context(), "ping", "-c1", fmt.Sprintf("-W%.1f", patience(should).Seconds()), to.Addr4().String())
	return err == nil
}

// TestGateOnVeth: in each mode, what rules name does not arrive, all else does, and rules
// change while connections come.
func TestGateOnVeth(t *testing.T) {
	for _, c := range []struct {
		mode    Mode
		foreign bool // a program of someone else's is at XDP
		bridge  bool // on a bridge, whose driver has no XDP
		early   datapath.Mode
	}{
		{mode: ModeAuto}, // not on veth
		{mode: ModeNative, early: datapath.ModeXDP},
		{mode: ModeGeneric, early: datapath.ModeXDP},
		{mode: ModeTC},
		{mode: ModeNative, foreign: true},
		{mode: ModeNative, bridge: true},
		{mode: ModeGeneric, bridge: true, early: datapath.ModeXDPGeneric},
	} {
		t.Run(fmt.Sprintf("%s,foreign_%t,bridge_%t", c.mode, c.foreign, c.bridge), func(t *testing.T) {
			cfg := lab.Default()
			cfg.Prefix = labtest.Prefix()
			l := labtest.New(t, cfg)
			alpha, beta := l.Host("alpha"), l.Host("beta")
			iface := beta.Interfaces[0].Name
			if c.foreign {
				occupy(t, beta, iface)
			}
			if c.bridge {
				iface = bridge(t, beta)
			}
			g := newGuard(t, beta, iface, c.mode)
			if got := g.dp.Modes(g.iface)[datapath.XDP]; got != c.early {
				t.Fatalf("at XDP: %q, want %q", got, c.early)
			}
			places, err := g.Places()
			if err != nil || len(places) != 1 || strings.Contains(places[0].Why, "another program (of_others, id ") != c.foreign {
				t.Errorf("%+v, %v", places, err)
			}
			try := func(text string, tcp4, tcp6, ping bool) {
				t.Helper()
				g.apply(t, text)
				if got := connects(t, alpha, beta, "tcp4", tcp4); got != tcp4 {
					t.Errorf("%s: TCP over IPv4: %t", text, got)
				}
				if got := connects(t, alpha, beta, "tcp6", tcp6); got != tcp6 {
					t.Errorf("%s: TCP over IPv6: %t", text, got)
				}
				if got := pings(t, alpha, beta, ping); got != ping {
					t.Errorf("%s: ping: %t", text, got)
				}
				if !tcp4 || !tcp6 || !ping {
					await.True(t, text+": packets that are dropped", func() bool { return g.dropped(t) > 0 })
				} else if n := g.dropped(t); n > 0 {
					t.Errorf("%s: dropped %d", text, n)
				}
			}
			try("count", true, true, true)
			try("drop ip tcp flags syn", false, true, true)
			try("drop src "+alpha.Addr6().String()+" tcp\ndrop icmp type 8", true, false, false)
			try("drop tcp iface other*\ndrop icmp type 0", true, true, true)
			try("drop iface "+iface+" tcp", false, false, true)
			try("pass src "+alpha.Addr4().String()+"/32\ndrop tcp", true, false, true)
			try("drop tcp dry-run", true, true, true)
			if err := g.dp.Detach(g.iface); err != nil {
				t.Fatal(err)
			}
			g.apply(t, "drop")
			if !connects(t, alpha, beta, "tcp4", true) {
				t.Error("detached, and it still drops")
			}
		})
	}
}

// occupy attaches a program to XDP of an interface that is not Waymark's.
func occupy(t *testing.T, h *lab.Host, iface string) {
	t.Helper()
	p := empty(t)
	if err := h.Do(func() error {
		l, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		x, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: l.Index})
		if err == nil {
			t.Cleanup(func() { _ = x.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// bridge puts the interface of a host into a bridge, which has the addresses from now on.
func bridge(t *testing.T, h *lab.Host) string {
	t.Helper()
	const name = "bridged"
	if err := h.Do(func() error {
		port, err := netlink.LinkByName(h.Interfaces[0].Name)
		if err != nil {
			return err
		}
		b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		if err := netlink.LinkAdd(b); err != nil {
			return err
		}
		errs := []error{netlink.LinkSetMaster(port, b), netlink.LinkSetUp(b)}
		for _, p := range []string{h.Interfaces[0].Addr4.String(), h.Interfaces[0].Addr6.String()} {
			a, err := netlink.ParseAddr(p)
			if err != nil {
				return err
			}
			errs = append(errs, netlink.AddrDel(port, a))
			a.Flags = 0
			if a.IP.To4() == nil {
				a.Flags = unix.IFA_F_NODAD
			}
			errs = append(errs, netlink.AddrAdd(b, a))
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Fatal(err)
	}
	return name
}

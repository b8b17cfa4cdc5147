package forward

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

func run(t *testing.T, h *lab.Host, words string) {
	t.Helper()
	if _, err := h.Run(t.Context(), strings.Fields(words)...); err != nil {
		t.Fatal(err)
	}
}

// TestFollowsChanges: what the kernel says of interfaces and of netfilter takes effect, and its reason is named; connections
// work all the time.
func TestFollowsChanges(t *testing.T) {
	l := chain(t, 1500, false)
	alpha, athos, porthos, beta := l.Host("alpha"), l.Host("athos"), l.Host("porthos"), l.Host("beta")
	r := newRouter(t, athos, Config{})
	follow(t, r)
	far := porthos.Interfaces[0].Name
	for _, c := range []struct {
		name, off, closed string // parts of the reasons of the interface towards porthos
		do, undo          func()
	}{
		{
			name: "the other end takes no frames of XDP", closed: "gro on",
			do:   func() { gro(t, porthos, far, false) },
			undo: func() { gro(t, porthos, far, true) },
		},
		{
			name: "rules of nftables", off: "inet wm c",
			do: func() {
				run(t, athos, "nft add table inet wm")
				run(t, athos, "nft add chain inet wm c { type filter hook forward priority 0 ; }")
				run(t, athos, "nft add rule inet wm c counter")
			},
			undo: func() { run(t, athos, "nft flush chain inet wm c") },
		},
		{
			name: "a policy that drops, at prerouting", off: "ip wm c",
			do: func() {
				run(t, athos, "nft add table ip wm")
				run(t, athos, "nft add chain ip wm c { type filter hook prerouting priority 0 ; policy drop ; }")
			},
			undo: func() { run(t, athos, "nft delete table ip wm") },
		},
		{
			name: "rules of iptables", off: "ip nat POSTROUTING",
			do:   func() { run(t, athos, "iptables-nft -t nat -A POSTROUTING -o nowhere -j MASQUERADE") },
			undo: func() { run(t, athos, "nft delete table ip nat") },
		},
		{
			name: "an IPsec policy", off: "IPsec",
			do:   func() { run(t, athos, "ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir fwd") },
			undo: func() { run(t, athos, "ip xfrm policy flush") },
		},
	} {
		forwards := func(when string) {
			t.Helper()
			await.True(t, c.name+": forwarding "+when, func() bool { p := r.portOf(t, 1); return p.Off == "" && p.Closed == "" })
			before := r.portOf(t, 0).Packets[0]
			transfer(t, alpha, beta, "tcp4", 1<<18)
			if now := r.portOf(t, 0).Packets[0]; now < before+100 {
				t.Errorf("%s: forwarding %s: %d packets, then %d", c.name, when, before, now)
			}
		}
		forwards("before")
		if c.name == "an IPsec policy" {
			if _, err := athos.Run(t.Context(), "ip", "xfrm", "policy"); err != nil {
				continue // this kernel has no IPsec
			}
		}
		c.do()
		await.True(t, c.name, func() bool {
			p := r.portOf(t, 1)
			return strings.Contains(p.Off, c.off) && strings.Contains(p.Closed, c.closed) && p.Closed != ""
		})
		before := r.portOf(t, 0).Packets[0]
		if c.off != "ip wm c" { // which lets none pass
			transfer(t, alpha, beta, "tcp4", 1<<16)
		}
		if now := r.portOf(t, 0).Packets[0]; now != before {
			t.Errorf("%s: %d packets are forwarded", c.name, now-before)
		}
		c.undo()
		forwards("afterwards")
	}
}

func gro(t *testing.T, h *lab.Host, iface string, on bool) {
	t.Helper()
	if err := h.SetFeatures(iface, on, "rx-gro"); err != nil {
		t.Fatal(err)
	}
}

// TestBypass: rules of netfilter are bypassed where that is asked for, and they are named.
func TestBypass(t *testing.T) {
	l := chain(t, 1500, false)
	athos := l.Host("athos")
	transfer(t, l.Host("alpha"), l.Host("beta"), "tcp4", 1) // now all neighbours are known
	run(t, athos, "nft add table inet wm")
	run(t, athos, "nft add chain inet wm c { type filter hook forward priority 0 ; policy drop ; }")
	r := newRouter(t, athos, Config{BypassNetfilter: true})
	follow(t, r)
	names, err := r.Bypasses()
	if err != nil || fmt.Sprint(names) != "[inet wm c]" {
		t.Errorf("%v, %v", names, err)
	}
	// Some packets go to the kernel, whose rule drops them, and are sent again.
	transfer(t, l.Host("alpha"), l.Host("beta"), "tcp4", 1<<18)
	if p := r.portOf(t, 0); p.Packets[0] < 100 {
		t.Errorf("%v", p.Packets)
	}
}

// TestKernelDoesNotForward: where it does not, XDP does not either.
func TestKernelDoesNotForward(t *testing.T) {
	l := chain(t, 1500, false)
	alpha, athos, beta := l.Host("alpha"), l.Host("athos"), l.Host("beta")
	r := newRouter(t, athos, Config{})
	follow(t, r)
	run(t, athos, "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")
	if p := r.portOf(t, 0); p.V4 || p.V6 {
		t.Errorf("%+v", p)
	}
	for _, argv := range [][]string{{"ping", "-c1", "-W0.2", beta.Addr4().String()}, {"ping", "-c1", "-W0.2", beta.Addr6().String()}} {
		if out, err := alpha.Run(t.Context(), argv...); err == nil {
			t.Error(out)
		}
	}
	// Of IPv4 it is the way back to the source that is asked for first.
	if p := r.portOf(t, 0); p.Packets[abiForwardResultFORWARD_DISABLED]+p.Packets[abiForwardResultFORWARD_SOURCE] < 2 || p.Packets[0] != 0 {
		t.Errorf("%v", p.Packets)
	}
}

// TestSilentAgent: programs that go on without the agent leave packets to the kernel.
func TestSilentAgent(t *testing.T) {
	l := chain(t, 1500, false)
	r := newRouter(t, l.Host("athos"), Config{}) // nobody follows changes
	alpha, beta := l.Host("alpha"), l.Host("beta")
	transfer(t, alpha, beta, "tcp4", 1<<16)
	// As if the last sign of life were long ago.
	if err := r.do(func() error {
		r.memory.Values[0].Tick -= 1 << 20
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	before := r.portOf(t, 0)
	transfer(t, alpha, beta, "tcp4", 1<<16)
	now := r.portOf(t, 0)
	if before.Packets[0] == 0 || now.Packets[0] != before.Packets[0] || now.Packets[abiForwardResultFORWARD_STALE] < 40 {
		t.Errorf("%v, then %v", before.Packets, now.Packets)
	}
	if err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	transfer(t, alpha, beta, "tcp4", 1<<16)
	if again := r.portOf(t, 0); again.Packets[0] == now.Packets[0] {
		t.Errorf("%v", again.Packets)
	}
}

// TestDetached: an interface that leaves is no way out any more, and packets take the kernel's.
func TestDetached(t *testing.T) {
	l := chain(t, 1500, false)
	r := newRouter(t, l.Host("athos"), Config{})
	follow(t, r)
	transfer(t, l.Host("alpha"), l.Host("beta"), "tcp6", 1<<16)
	if err := r.dp.Detach(r.ifaces[1]); err != nil {
		t.Fatal(err)
	}
	before := r.portOf(t, 0)
	transfer(t, l.Host("alpha"), l.Host("beta"), "tcp6", 1<<16)
	now := r.portOf(t, 0)
	if before.Packets[0] == 0 || now.Packets[0] != before.Packets[0] || now.Packets[abiForwardResultFORWARD_NO_PORT] < 40 {
		t.Errorf("%v, then %v", before.Packets, now.Packets)
	}
	if err := r.dp.Drain(func(*flow.Delta) {}); err != nil {
		t.Error(err)
	}
}

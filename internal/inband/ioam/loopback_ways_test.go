package ioam

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/await"
)

// Routers that do their work at XDP send copies, too, and fill those of others: of datagrams, and of segments of TCP.
func TestLoopbackAtXDP(t *testing.T) {
	c := newLoopbackChain(t, TransitXDP, nil)
	if got := c.send(10); got != 10 {
		t.Errorf("%d of 10 datagrams arrived", got)
	}
	c.await("1-2-1/2", "1-2-3-2-1/3", "1-2-3-4-3-2-1/4", "1-2-3-4-5-4-3-2-1/5")
	c.copiesOfSegments()
}

// Behind outer headers, copies go to the router that put them there, and not to the source of the packets, also where
// packets get lost further on.
func TestLoopbackInTunnel(t *testing.T) {
	const exit = "to-porthos"
	c := newLoopbackChain(t, TransitTC, nil)
	c.source = "athos"
	alpha, athos, beta := c.with["alpha"], c.with[c.source], c.Host("beta").Addr6()
	in := alpha.Insertions[0]
	in.Tunnel = &Tunnel{Source: netip.MustParseAddr(addressOf(t, c.Host(c.source), exit)), Destination: beta}
	alpha.Insertions, athos.Insertions = nil, []Insertion{in}
	c.must(c.nodes["alpha"].Apply(alpha))
	c.must(c.nodes[c.source].Apply(athos))
	undo := c.attach("aramis", "to-porthos", c.program(swallowing(beta.String())), ebpf.AttachTCXIngress, link.Head())
	if got := c.send(10); got != 0 {
		t.Errorf("%d datagrams arrived through a link that loses all", got)
	}
	c.await("2-3-2/2")
	undo()
	if got := c.send(10); got != 10 {
		t.Errorf("%d of 10 datagrams arrived", got)
	}
	c.await("2-3-2/2", "2-3-4-3-2/3", "2-3-4-5-4-3-2/4")
	c.copiesOfSegments()
	if s := stats(t, c.nodes["alpha"]); s.Returned > 0 {
		t.Errorf("%d copies went to the source of the packets inside", s.Returned)
	}
}

// The rules of a gate come before loopback, at either hook: what they drop is neither filled nor copied, a packet that passes
// a limit is copied once, and rules about copies take no packet with a trace away.
func TestLoopbackBehindGate(t *testing.T) {
	for mode, transit := range map[gate.Mode]Transit{gate.ModeTC: TransitTC, gate.ModeNative: TransitXDP} {
		t.Run(string(mode), func(t *testing.T) {
			const sent = 300
			cfg := gate.Default()
			cfg.Mode = mode
			gates, others := map[string]*gate.Gate{}, map[string]*datapath.Stage{}
			for _, name := range []string{"athos", "porthos"} {
				gates[name] = gate.New(cfg, slog.New(slog.DiscardHandler))
				others[name] = gates[name].Stage(func(string) bool { return true })
			}
			c := newLoopbackChain(t, transit, others)
			apply := func(name, text string) {
				rs, _, err := rules.Parse("f", text, rules.Options{Now: time.Now()})
				if err == nil {
					err = gates[name].Apply(rs)
				}
				c.must(err)
			}
			dropped := func(name string) uint64 {
				all, err := gates[name].Counters()
				c.must(err)
				return all.Rules[0].Dropped
			}
			apply("porthos", "limit 20/s burst 20 udp dst port 9")
			arrived := uint64(c.send(sent))
			c.settled()
			athos, porthos, aramis := stats(t, c.nodes["athos"]).Looped, stats(t, c.nodes["porthos"]).Looped, stats(t, c.nodes["aramis"]).Looped
			if over := dropped("porthos"); over == 0 || porthos+over != athos || aramis != porthos || arrived > porthos {
				t.Errorf("of %d packets a gate dropped %d; copied before %d, there %d, and behind %d; %d arrived", sent, over, athos, porthos, aramis, arrived)
			}
			apply("porthos", "drop udp dst port 10")
			apply("athos", "drop proto 59")
			before := stats(t, c.nodes["alpha"]).Returned
			if arrived := c.send(20); arrived != 20 {
				t.Errorf("%d of 20 packets arrived where copies are dropped", arrived)
			}
			await.Success(t, func() error { // of four nodes, three send theirs through the gate
				if n, back := dropped("athos"), stats(t, c.nodes["alpha"]).Returned-before; n != 3*20 || back != 20 {
					return fmt.Errorf("%d copies were dropped, and %d came back", n, back)
				}
				return nil
			})
			c.noFaults()
		})
	}
}

// copiesOfSegments sends segments of TCP: all arrive, nodes make copies of them, and each of these comes back.
func (c *loopbackChain) copiesOfSegments() {
	c.t.Helper()
	before := stats(c.t, c.nodes[c.source])
	transfer(c.t, c.Host("alpha"), c.Host("beta"), nil, 1<<20)
	await.True(c.t, "copies of segments", func() bool { return stats(c.t, c.nodes[c.source]).Returned > before.Returned })
	c.settled()
	c.noFaults()
}

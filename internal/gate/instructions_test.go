package gate

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/interp"
	"github.com/waymark-net/waymark/test/packet"
)

// TestInstructions: packets in turns at XDP take no more instructions over the empty program than they have to; that does not depend on
// the load of the machine, as times do.
func TestInstructions(t *testing.T) {
	many := manyRules(t, rand.New(rand.NewPCG(1, 2)))
	one, _, err := rules.Parse("f", "drop udp dst port 9\ndrop tcp dst port 80", rules.Options{Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	within := func(is func(netip.Addr) bool) string {
		list := many.Rules[300].Match.Src.Prefixes
		return list[slices.IndexFunc(list, func(p netip.Prefix) bool { return is(p.Addr()) })].Addr().String()
	}
	v4, v6 := packet.Eth().IPv4("192.0.2.1", "192.0.2.2"), packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	one4, one6 := packet.Eth().IPv4(within(netip.Addr.Is4), "192.0.2.2"), packet.Eth().IPv6(within(netip.Addr.Is6), "2001:db8::2")
	b := open(t, Default())
	defer datapathtest.OnOneProcessor(t)()
	for _, k := range []struct {
		name    string
		rules   *rules.Ruleset
		frames  []packet.Builder // in turns
		verdict int32
		most    float64
	}{
		{"one rule, pass", one, []packet.Builder{v4.UDP(1, 8).Payload(30)}, xdpPass, 175},
		{"one rule, like the one before", one, []packet.Builder{v4.UDP(1, 9).Payload(30)}, xdpDrop, 85},
		{"one rule, TCP, like the one before", one, []packet.Builder{v4.TCP(1, 80).Flags(packet.SYN).Payload(30)}, xdpDrop, 87},
		{"one rule, IPv6, like the one before", one, []packet.Builder{v6.UDP(1, 9).Payload(30)}, xdpDrop, 105},
		{"one rule, flows in turns", one, []packet.Builder{v4.UDP(1, 9).Payload(30), v4.UDP(2, 9).Payload(30)}, xdpDrop, 410},
		{"one rule, IPv6, flows in turns", one, []packet.Builder{v6.UDP(1, 9).Payload(30), v6.UDP(2, 9).Payload(30)}, xdpDrop, 460},
		{"512 rules, between prefixes", many, []packet.Builder{packet.Eth().IPv4("101.0.2.1", "192.0.2.2").TCP(1, 2).Payload(30)}, xdpPass, 525},
		{"512 rules, too short", many, []packet.Builder{one4.TCP(1, 1000).Payload(30)}, xdpPass, 620},
		{"512 rules, like the one before", many, []packet.Builder{one4.TCP(1, 1000).Payload(1400)}, xdpDrop, 87},
		{"512 rules, flows in turns", many, []packet.Builder{one4.TCP(1, 1000).Payload(1400), one4.TCP(2, 1000).Payload(1400)}, xdpDrop, 380},
		{"512 rules, IPv6, flows in turns", many, []packet.Builder{one6.TCP(1, 1000).Payload(1400), one6.TCP(2, 1000).Payload(1400)}, xdpDrop, 420},
		{"512 rules, lengths in turns", many, []packet.Builder{one4.TCP(1, 1000).Payload(1400), one4.TCP(1, 1000).Payload(1300)}, xdpDrop, 1120},
	} {
		if err := b.Apply(k.rules); err != nil {
			t.Fatal(err)
		}
		var frames [][]byte
		for _, f := range k.frames {
			frames = append(frames, f.Bytes())
		}
		if n := b.instructions(t, frames, k.verdict); n > k.most {
			t.Errorf("%s: %.1f instructions, want at most %.0f", k.name, n, k.most)
		} else {
			t.Logf("%s: %.1f instructions", k.name, n)
		}
	}
}

// instructions are those of a packet of a known flow.
func (b *bench) instructions(t *testing.T, frames [][]byte, verdict int32) (n float64) {
	t.Helper()
	const rounds, empty = 32, 2
	for range 4 {
		for _, f := range frames {
			b.run(t, hooks[0], f)
		}
	}
	vm, err := interp.New()
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	vm.Now = uint64(now.Nano())
	for i := range 2 * rounds {
		for _, f := range frames {
			got, cost, err := vm.RunXDP(b.program(t, datapath.Early), f, uint32(lo))
			if err != nil || got != verdict {
				t.Fatalf("verdict %d, want %d; %v", got, verdict, err)
			}
			if i >= rounds {
				n += float64(cost.Instructions - empty)
			}
		}
	}
	return n / float64(rounds*len(frames))
}

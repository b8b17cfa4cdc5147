package gate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// from is a packet of a source.
func from(a netip.Addr) []byte {
	if a.Is4() {
		return packet.Eth().IPv4(a.String(), "198.51.100.2").UDP(1, 2).Bytes()
	}
	return packet.Eth().IPv6(a.String(), "2001:db8:f::2").UDP(1, 2).Bytes()
}

// near draws one of few addresses, so that prefixes of them are often within one another.
func near(r *rapid.T) netip.Addr {
	last := byte(rapid.SampledFrom([]int{0, 1, 2, 3, 127, 128, 255}).Draw(r, "last"))
	middle := byte(rapid.IntRange(0, 2).Draw(r, "middle"))
	if rapid.Bool().Draw(r, "v4") {
		return netip.AddrFrom4([4]byte{192, 0, middle, last})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, middle, 0, 0, last, 15: last})
}

func nearPrefix(r *rapid.T, lengths []int) netip.Prefix {
	a := near(r)
	n := rapid.SampledFrom(lengths).Draw(r, "bits")
	if !a.Is4() {
		n *= 4
	}
	p, _ := a.Prefix(n)
	return p
}

// TestBansDrop: at both hooks, exactly the packets are dropped whose source is in a banned
// prefix and in no allow list, through changes of bans and rules, and all are counted.
func TestBansDrop(t *testing.T) {
	b := open(t, small())
	rapid.Check(t, func(r *rapid.T) {
		lengths := []int{8, 22, 24, 25, 28, 31, 32}
		banned, allowed := map[netip.Prefix]bool{}, []netip.Prefix{}
		var text strings.Builder
		for range rapid.IntRange(0, 3).Draw(r, "allowed") {
			p := nearPrefix(r, lengths)
			allowed = append(allowed, p)
			fmt.Fprintf(&text, "pass src %s\n", p)
		}
		fmt.Fprintf(&text, "pass src 192.0.0.0/8 tcp\npass src 192.0.0.0/8 dry-run\npass not src 10.0.0.0/8 iface nosuch\ncount udp")
		if len(allowed) > 0 && rapid.Bool().Draw(r, "set") {
			text.WriteString("\nset s { 192.0.2.3, 2001:db8:200::/40 }\npass src @s")
			allowed = append(allowed, netip.MustParsePrefix("192.0.2.3/32"), netip.MustParsePrefix("2001:db8:200::/40"))
		}
		rs, _, err := rules.Parse("f", text.String(), rules.Options{Now: time.Now()})
		if err != nil {
			r.Fatal(err)
		}
		change := func() {
			for range rapid.IntRange(0, 6).Draw(r, "bans") {
				p := nearPrefix(r, lengths)
				if err := b.Ban(Ban{Prefix: p}); err != nil {
					r.Fatal(err)
				}
				banned[p] = true
			}
			var gone []netip.Prefix
			for p := range banned {
				if len(gone) < 2 {
					gone = append(gone, p)
					delete(banned, p)
				}
			}
			if err := b.Unban(gone...); err != nil {
				r.Fatal(err)
			}
		}
		change()
		if err := b.Apply(rs); err != nil {
			r.Fatal(err)
		}
		change()
		in := func(list []netip.Prefix, a netip.Addr) bool {
			for _, p := range list {
				if p.Contains(a) {
					return true
				}
			}
			return false
		}
		before, err := b.Counters()
		if err != nil {
			r.Fatal(err)
		}
		var drops, exempt, sent uint64
		for range 40 {
			a := near(r)
			is := false
			for p := range banned {
				is = is || p.Contains(a)
			}
			free := in(allowed, a)
			if free != b.table.Allowed(a) {
				r.Fatalf("%s: allowed %t by the tables", a, !free)
			}
			for _, h := range hooks {
				sent++
				got, _ := b.run(r, h, from(a))
				if got != (is && !free) {
					r.Fatalf("%s: %s: dropped %t; banned %v, rules\n%s", h.name, a, got, banned, rs)
				}
				if got {
					drops++
				}
				if is && free {
					exempt++
				}
			}
		}
		after, err := b.Counters()
		if err != nil {
			r.Fatal(err)
		}
		if d, e := after.Banned.Dropped-before.Banned.Dropped, after.Exempt.Packets-before.Exempt.Packets; d != drops || e != exempt {
			r.Errorf("counted %d dropped, %d exempt; want %d, %d", d, e, drops, exempt)
		}
		var ended uint64
		b.OnUnban(func(c BanCounts, err error) {
			if err != nil {
				r.Error(err)
			}
			ended += c.Dropped
		})
		list, err := b.Bans()
		if err != nil || len(list) != len(banned) {
			r.Fatalf("%v, %v; want %v", list, err, banned)
		}
		if err := b.Unban(slices.Collect(maps.Keys(banned))...); err != nil {
			r.Fatal(err)
		}
		b.OnUnban(nil)
		if ended != drops {
			r.Errorf("bans counted %d packets, want %d", ended, drops)
		}
		if dropped, _ := b.run(r, hooks[0], from(netip.MustParseAddr("192.0.0.1"))); dropped || b.bans.control.Used != [2]uint32{} || len(b.bans.free) != 64 {
			r.Fatalf("dropped without a ban: %+v", b.bans.control)
		}
	})
}

// A ban ends by the clock, although the agent does nothing; it can be extended, and keeps
// its counters then.
func TestBanEnds(t *testing.T) {
	b := open(t, small())
	a := netip.MustParseAddr("192.0.2.1")
	p := netip.PrefixFrom(a, 32)
	dropped := func() bool {
		d, _ := b.run(t, hooks[0], from(a))
		return d
	}
	if err := b.Ban(Ban{Prefix: p, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if !dropped() {
		t.Fatal("not dropped")
	}
	if err := b.Ban(Ban{Prefix: p, Until: time.Now().Add(2 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if list, err := b.Bans(); err != nil || len(list) != 1 || list[0].Dropped != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if err := b.Ban(Ban{Prefix: p, Until: time.Now().Add(200 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the end of the ban", func() bool { return !dropped() })
	if len(b.bans.list) != 1 {
		t.Error("the agent ended it")
	}
	var last BanCounts
	b.OnUnban(func(c BanCounts, _ error) { last = c })
	if list, err := b.Bans(); err != nil || len(list) != 0 || last.Prefix != p || last.Dropped == 0 {
		t.Errorf("%v, %v, %+v", list, err, last)
	}
}

// What does not fit changes nothing, and says what would.
func TestBansFull(t *testing.T) {
	b := open(t, small())
	for bits := 25; bits <= 32; bits++ {
		if err := b.Ban(Ban{Prefix: netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), bits)}); err != nil {
			t.Fatal(err)
		}
	}
	before, err := b.Bans()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"11.0.0.0/13": "has another: ban a prefix of one of these, or add the rule drop src 11.0.0.0/13",
	} {
		if err := b.Ban(Ban{Prefix: netip.MustParsePrefix(text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for i := len(before); i < 64; i++ {
		if err := b.Ban(Ban{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 32)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Ban(Ban{Prefix: netip.MustParsePrefix("10.9.9.9/32")}); err == nil || !strings.Contains(err.Error(), "all 64 bans are in use") {
		t.Error(err)
	}
	if d, _ := b.run(t, hooks[1], from(netip.MustParseAddr("10.0.0.7"))); !d {
		t.Error("a ban was lost")
	}
	if d, _ := b.run(t, hooks[1], from(netip.MustParseAddr("11.0.0.7"))); d {
		t.Error("dropped without a ban")
	}
}

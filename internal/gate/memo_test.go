package gate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/packet"
)

// portFrames are packets in which rules about protocols and ports of destinations see differences, and such in which they see none.
func portFrames() (frames [][]byte) {
	for i := range 3 {
		v4 := packet.Eth().IPv4(fmt.Sprintf("192.0.2.%d", i+1), "198.51.100.2").TOS(uint8(i))
		v6 := packet.Eth().IPv6(fmt.Sprintf("2001:db8::%d", i+1), "2001:db8::99")
		for _, ip := range []packet.Builder{v4, v6} {
			for _, port := range []uint16{53, 80, 0} {
				frames = append(frames, ip.UDP(7, port).Payload(20+i).Bytes(), ip.TCP(7, port).Flags(packet.SYN).Payload(20+i).Bytes())
			}
			frames = append(frames, ip.UDP(9, 53).Payload(30).Bytes())
		}
		frames = append(frames, v4.ICMP(8, 0, 1, uint16(i)).Payload(20).Bytes(), packet.Eth().VLAN(5).IPv4("192.0.2.1", "198.51.100.2").UDP(7, 53).Payload(20).Bytes())
	}
	return append(frames, packet.Eth().ARP("192.0.2.1", "192.0.2.2").Bytes())
}

// TestPacketsOfOnePort: rules about protocols and ports of destinations decide and count about runs of packets as the reference does,
// also when rules, bans and interfaces change between them.
func TestPacketsOfOnePort(t *testing.T) {
	b := open(t, small())
	defer datapathtest.OnOneProcessor(t)()
	frames := portFrames()
	banned := netip.MustParsePrefix("192.0.2.1/32")
	decided := 0
	rapid.Check(t, func(r *rapid.T) {
		draw := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(r, name) }
		var rs *rules.Ruleset
		isBanned, away := false, false
		apply := func() {
			var text strings.Builder
			for range rapid.IntRange(0, 5).Draw(r, "rules") {
				fmt.Fprintf(&text, "%s %s%s\n", draw("action", "drop", "pass", "drop", "count"), draw("version", "", "ip ", "ip6 "),
					draw("what", "udp dst port 53", "tcp dst port 80", "udp", "tcp", "dst port 80-81", "udp dst port 0", "icmp", ""))
			}
			next, _, err := rules.Parse("f", text.String(), rules.Options{Now: time.Now()})
			if err != nil {
				r.Skip(err) // the same rule twice
			}
			if err := b.Apply(next); err != nil {
				r.Fatal(err)
			}
			rs = next
		}
		ban := func(do bool) {
			if err := map[bool]func() error{
				true:  func() error { return b.Ban(Ban{Prefix: banned, Since: time.Now()}) },
				false: func() error { return b.Unban(banned) },
			}[do](); err != nil {
				r.Fatal(err)
			}
			isBanned = do
		}
		move := func(leave bool) {
			p := Place{Iface: lo, Name: "lo", hooks: engine.HookXDP | engine.HookTC}
			if leave {
				p.hooks = engine.HookTC
			}
			if err := b.do(func() error { return b.enter(p) }); err != nil {
				r.Fatal(err)
			}
			away = leave
		}
		defer func() {
			if isBanned {
				ban(false)
			}
			if away {
				move(false)
			}
		}()
		if err := b.Apply(&rules.Ruleset{}); err != nil { // counters begin again
			r.Fatal(err)
		}
		apply()
		for range rapid.IntRange(5, 40).Draw(r, "steps") {
			switch rapid.IntRange(0, 20).Draw(r, "step") {
			case 0:
				apply()
			case 1:
				ban(!isBanned)
			case 2:
				move(!away)
			case 3:
				b.drain(r)
			default:
				f := rapid.SampledFrom(frames).Draw(r, "frame")
				before, err := b.Counters()
				if err != nil {
					r.Fatal(err)
				}
				n := rapid.IntRange(1, 3).Draw(r, "packets")
				p := rules.ReadEthernet(f)
				p.Iface = "lo"
				d := rs.Decide(p, rules.State{Now: time.Now()})
				out := isBanned && p.Src.IsValid() && banned.Contains(p.Src)
				drops := !away && (out || d.Verdict == rules.VerdictDrop)
				for range n {
					if dropped, ran := b.run(r, hooks[0], f); ran && dropped != drops {
						r.Fatalf("dropped %t, want %t: %x\n%s", dropped, drops, f, rs)
					}
				}
				after, err := b.Counters()
				if err != nil {
					r.Fatal(err)
				}
				want := map[string]uint64{}
				switch {
				case away:
				case out:
					want["banned"] = uint64(n)
				case p.Family == 0:
					want["not IP"] = uint64(n)
				default:
					for _, rule := range d.Counted {
						want[rule.Text] = uint64(n)
					}
					if d.Rule == nil {
						want["passed"] = uint64(n)
					}
					decided += n
				}
				got := map[string]uint64{}
				note := func(name string, after, before Counts) {
					if n := after.Packets - before.Packets; n > 0 {
						got[name] = n
					}
				}
				note("banned", after.Banned, before.Banned)
				note("not IP", after.NotIP, before.NotIP)
				note("passed", after.Passed, before.Passed)
				for i := range after.Rules {
					note(after.Rules[i].Rule.Text, after.Rules[i].Counts, before.Rules[i].Counts)
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					r.Fatalf("counted (-want +got):\n%s\n%x\n%s", diff, f, rs)
				}
			}
		}
	})
	if decided < 500 {
		t.Errorf("rules decided about %d packets only", decided)
	}
}

package gate

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

func (b *bench) apply(t testing.TB, text string) {
	t.Helper()
	rs, _, err := rules.Parse("f", text, rules.Options{Now: time.Now()})
	if err == nil {
		err = b.Apply(rs)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// counted are the packets of the rules in effect, those that were dropped, and the rest.
func (b *bench) counted(t testing.TB) (out [][2]uint64) {
	t.Helper()
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Rules {
		out = append(out, [2]uint64{r.Packets, r.Dropped})
	}
	return append(out, [2]uint64{c.Passed.Packets, 0})
}

// A GSO frame is as many packets as its segments, for counters and for limits.
func TestGSOFrames(t *testing.T) {
	b := open(t, small())
	b.apply(t, "count tcp\nlimit 1/s burst 10 tcp")
	frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").TCP(1, 2).Payload(2000).Bytes()
	for range 3 { // 4 packets each
		ctx := make([]byte, 192) // struct __sk_buff
		copy(ctx[164:], []byte{4, 0, 0, 0})
		copy(ctx[176:], []byte{0xf4, 1, 0, 0})
		if _, err := b.program(t, datapath.Ingress).Run(&ebpf.RunOptions{Data: frame, Context: ctx}); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(b.counted(t)); got != "[[12 0] [12 4] [8 0]]" {
		t.Error(got)
	}
}

// A source gets its burst again only when there is no space for its bucket; also where the bucket takes longer to fill than the
// machine has been up.
func TestForgottenSources(t *testing.T) {
	cfg := small()
	cfg.Sources = 4 // one line
	b := open(t, cfg)
	b.apply(t, "limit 1 bytes/s burst 900000000 per src\nlimit 1 bytes/s burst 800000000 per src")
	for i := range 3 {
		b.run(t, hooks[0], packet.Eth().IPv4(fmt.Sprintf("192.0.2.%d", i), "192.0.2.9").UDP(1, 2).Bytes())
		c, err := b.Counters()
		if want := uint64(i) &^ 1; err != nil || c.Forgotten != want {
			t.Errorf("%d sources: %d buckets forgotten, want %d, %v", 1+i, c.Forgotten, want, err)
		}
	}
}

// Rules and members of sets end when their time has come, by themselves.
func TestEnds(t *testing.T) {
	b := open(t, small())
	frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes()
	for lasts, dropped := 100*time.Millisecond, false; !dropped; lasts *= 2 {
		rs, _, err := rules.Parse("f", "set s { 192.0.2.1, 192.0.2.9 }\ndrop src @s dst port 1 udp\ndrop udp src @s", rules.Options{})
		if err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(2 * lasts)
		rs.Rules[0].Until, rs.Sets[0].Prefixes[0].Until = time.Now().Add(lasts), end
		if err := b.Apply(rs); err != nil {
			t.Fatal(err)
		}
		if dropped, _ = b.run(t, hooks[0], frame); !dropped && time.Now().Before(end) {
			t.Fatal("not dropped before the end")
		}
	}
	await.True(t, "the end of a rule and of a member", func() bool {
		dropped, _ := b.run(t, hooks[0], frame)
		return !dropped && len(b.counted(t)) == 2
	})
	if c := b.counted(t); c[0][1] == 0 {
		t.Errorf("the rule that stays lost its counters: %v", c)
	}
}

// Packets of a tun, which have no link header.
func TestWithoutLinkHeader(t *testing.T) {
	h := labtest.NewHost(t)
	b := &bench{Gate: New(small(), slogDiscard())}
	d := datapath.New(datapath.Config{MaxEntries: 64, Stages: []*datapath.Stage{b.Stage(func(string) bool { return true })}}, slogDiscard())
	if err := d.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	var tun *os.File
	var index int
	if err := h.Do(func() error {
		l := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tun0"}, Mode: netlink.TUNTAP_MODE_TUN, Queues: 1, Flags: netlink.TUNTAP_NO_PI}
		if err := netlink.LinkAdd(l); err != nil {
			return err
		}
		tun = l.Fds[0]
		added, err := netlink.LinkByName("tun0")
		if err != nil {
			return err
		}
		index = added.Attrs().Index
		return netlink.LinkSetUp(added)
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tun.Close() })
	if _, err := d.Attach(datapath.Target{Iface: flow.NewIface(0, uint32(index)), Name: "tun0", NoLinkHeader: true, Do: h.Do}); err != nil {
		t.Fatal(err)
	}
	b.apply(t, "count iface tun0 ip\ndrop udp dst port 9 src 192.0.2.0/24\ndrop ip6 udp src port 7")
	for _, p := range []packet.Builder{
		packet.IPv4("192.0.2.1", "192.0.2.2").UDP(1, 9), packet.IPv4("192.0.2.1", "192.0.2.2").UDP(1, 8),
		packet.IPv6("2001:db8::1", "2001:db8::2").UDP(7, 9), packet.IPv6("2001:db8::1", "2001:db8::2").HopByHop().UDP(7, 9),
	} {
		if _, err := tun.Write(p.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "all packets", func() bool { return fmt.Sprint(b.counted(t)) == "[[2 0] [1 1] [2 2] [1 0]]" })
}

// Where the copies of programs have all features, a packet meets the rules at one hook nevertheless.
func TestOneHook(t *testing.T) {
	b := open(t, small())
	b.apply(t, "drop udp")
	frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes()
	for i, hook := range []datapath.HookType{datapath.XDP, datapath.TCIngress} {
		if err := b.do(func() error {
			return b.attached(datapath.Hook{Type: hook, Target: &datapath.Target{Iface: lo, Name: "lo", Do: func(f func() error) error { return f() }}})
		}); err != nil {
			t.Fatal(err)
		}
		for k, h := range hooks {
			if dropped, _ := b.run(t, h, frame); dropped != (i == k) {
				t.Errorf("attached to %s: at %s: dropped %t", hook, h.name, dropped)
			}
		}
	}
}

// TestFlowRulesBehindXDP: packets that met the rules at XDP meet them at tc for what they say of flow records, and are not
// counted again.
func TestFlowRulesBehindXDP(t *testing.T) {
	b := open(t, small())
	if err := b.do(func() error { return b.enter(Place{Iface: lo, Name: "lo", hooks: engine.HookXDP}) }); err != nil {
		t.Fatal(err)
	}
	b.apply(t, "limit 1/s burst 1 udp\nno-flow udp dst port 1\ndrop udp dst port 3\nonly-flow udp\ncount")
	for port := range uint16(5) {
		b.send(t, hooks[1], burst{data: packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, port).Bytes()})
	}
	b.send(t, hooks[1], burst{data: packet.Eth().IPv4("192.0.2.1", "192.0.2.2").TCP(1, 2).Bytes()})
	if got := fmt.Sprint(b.counted(t)); got != "[[0 0] [0 0] [0 0] [0 0] [0 0] [0 0]]" {
		t.Error(got)
	}
	// Port 1, port 3, which no packet behind XDP has, and TCP.
	if got := b.reasons(t)["no_flow"]; got != 3 {
		t.Errorf("%d packets have no record", got)
	}
	if flows := b.drain(t).flows; len(flows) != 3 {
		t.Errorf("%d flows, want 3", len(flows))
	}
}

// Simple rules take a short way at XDP: there and at tc, which has none, packets get the same verdict, and are counted alike.
func TestQuick(t *testing.T) {
	b := open(t, small())
	b.apply(t, "drop udp dst port 7\ncount tcp dst port 9\npass tcp dst port 9-10\ndrop proto icmp,tcp\npass ip6")
	rs := b.Rules()
	want := map[string]uint64{}
	eth := packet.Eth()
	for _, one := range []packet.Builder{
		eth.IPv4("192.0.2.1", "192.0.2.2").UDP(1, 7), eth.IPv4("192.0.2.1", "192.0.2.2").UDP(7, 8), eth.IPv6("2001:db8::1", "2001:db8::2").UDP(1, 7),
		eth.IPv4("192.0.2.1", "192.0.2.2").TCP(1, 9), eth.IPv4("192.0.2.1", "192.0.2.2").TCP(1, 10), eth.IPv4("192.0.2.1", "192.0.2.2").TCP(1, 11),
		eth.VLAN(5).IPv4("192.0.2.1", "192.0.2.2").UDP(1, 7), eth.IPv6("2001:db8::1", "2001:db8::2").HopByHop().UDP(1, 7), eth.IPv6("2001:db8::1", "2001:db8::2").UDP(1, 8),
	} {
		frame := one.Payload(40).Bytes()
		d := rs.Decide(rules.ReadEthernet(frame), rules.State{Now: time.Now()})
		for _, h := range hooks {
			if dropped, _ := b.run(t, h, frame); dropped != (d.Verdict == rules.VerdictDrop) {
				t.Errorf("%s: dropped %t, want %v\n%x", h.name, dropped, d.Verdict, frame)
			}
			for _, r := range d.Counted {
				want[r.Text]++
			}
		}
	}
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Rules {
		if r.Packets != want[r.Rule.Text] || (r.Rule.Action == rules.ActionDrop) != (r.Dropped > 0) || r.Dropped > 0 && r.Dropped != r.Packets {
			t.Errorf("%s: %+v, want %d packets", r.Rule.Text, r.Counts, want[r.Rule.Text])
		}
	}
}

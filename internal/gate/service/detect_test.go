package service

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/gate"
)

func at(seconds int) time.Time { return time.Unix(int64(seconds), 0) }

// Bans take twice as long each time, up to a limit, and begin again after quiet time.
func TestBackOff(t *testing.T) {
	d := newDetector(DetectConfig{Ban: 10 * time.Second, Longest: 35 * time.Second, Forgive: 100 * time.Second, Rate: 100}, 100)
	source := netip.MustParsePrefix("192.0.2.1/32")
	for _, c := range []struct{ at, level, lasts int }{
		{0, 0, 10}, {10, 1, 20}, {31, 2, 35}, {100, 3, 35}, {234, 4, 35}, {370, 0, 10}, {381, 1, 20},
	} {
		result, level, until := d.judge(source, false, &surroundings{}, at(c.at))
		if lasts := int(until.Sub(at(c.at)).Seconds()); result != resultBanned || level != c.level || lasts != c.lasts {
			t.Errorf("at %d: %s, level %d for %d s, want level %d for %d s", c.at, result, level, lasts, c.level, c.lasts)
		}
	}
}

// What detection must never ban, and what bounds its bans.
func TestSpared(t *testing.T) {
	cfg := DetectConfig{Ban: time.Second, Longest: time.Hour, Forgive: time.Hour, Rate: 3}
	s := &surroundings{
		allowed: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28")}, host: []netip.Addr{netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr("fe80::1")},
		logins: []netip.Addr{netip.MustParseAddr("198.51.100.7")},
		known:  map[netip.Prefix]Ban{netip.MustParsePrefix("192.0.2.9/32"): {By: ByOperator}},
	}
	d := newDetector(cfg, 10)
	for text, want := range map[string]string{
		"203.0.113.7/32": resultAllowed, "203.0.113.0/28": resultAllowed, "192.0.2.254/32": resultHost, "192.0.2.0/24": resultHost, "fe80::/64": resultHost,
		"198.51.100.7/32": resultLogin, "198.51.100.0/24": resultLogin,
		"192.0.2.9/32": resultKnown, "224.0.0.1/32": resultNobody, "0.0.0.0/32": resultNobody, "127.0.0.1/32": resultNobody, "ff02::1/128": resultNobody,
	} {
		if result, _, _ := d.judge(netip.MustParsePrefix(text), false, s, at(0)); result != want {
			t.Errorf("%s: %s, want %s", text, result, want)
		}
	}
	for _, text := range []string{"203.0.113.0/24", "198.51.100.8/32"} {
		if result, _, _ := d.judge(netip.MustParsePrefix(text), true, s, at(0)); result != resultDryRun {
			t.Errorf("%s: %s", text, result)
		}
	}
	next := netip.MustParseAddr("10.0.0.0")
	ban := func(now time.Time) string {
		next = next.Next()
		p := netip.PrefixFrom(next, 32)
		result, _, _ := d.judge(p, false, s, now)
		if result == resultBanned {
			s.known[p] = Ban{By: ByDetection}
		}
		return result
	}
	for i, want := range []string{resultBanned, resultBanned, resultBanned, resultLimited} { // a minute's worth
		if got := ban(at(1)); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	for i, want := range []string{resultBanned, resultBanned, resultLimited} { // half of all bans
		if got := ban(at(100)); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	for i := range 1000 {
		d.note(netip.PrefixFrom(netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}), 32), pastBan{0, at(i)}, at(i))
	}
	if len(d.past) > 2*d.most {
		t.Errorf("%d bans are remembered, of %d", len(d.past), 2*d.most)
	}
}

// Operators are known by their changes, for a day, and the last of them.
func TestLogins(t *testing.T) {
	s := &service{logins: map[netip.Addr]time.Time{}}
	from := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }
	for i := range maxLogins + 3 {
		s.noteLogins([]Connection{{Remote: netip.AddrPortFrom(netip.AddrFrom16(from(i).As16()), 50000)}}, at(i))
	}
	got := s.loginsAt(at(maxLogins + 3))
	if len(got) != maxLogins || slices.Contains(got, from(2)) || !slices.Contains(got, from(3)) {
		t.Errorf("%v", got)
	}
	if got := s.loginsAt(at(10).Add(loginLasts)); len(got) != maxLogins+3-10 {
		t.Errorf("%d after a day: %v", len(got), got)
	}
}

// A flood of forged sources is reported when it begins and when it has ended; one that comes
// from few sources is none.
func TestFloods(t *testing.T) {
	f := newFloods(1000)
	for i, c := range []struct {
		packets, sources uint64
		want             string
	}{
		{500, 500, ""},
		{50000, 10, ""},
		{50000, 40000, EventFlood},
		{50000, 40000, ""},
		{10, 10, ""},
		{50000, 40000, ""},
		{10, 10, ""},
		{0, 0, ""},
		{0, 0, ""},
		{0, 0, ""},
		{0, 0, EventFloodEnd},
		{0, 0, ""},
	} {
		w := gate.Window{Rule: 1, Number: uint64(i + 1), Packets: c.packets, Sources: c.sources}
		if got, _ := f.next(w); got != c.want {
			t.Errorf("window %d: %q, want %q", i, got, c.want)
		}
		if got, _ := f.next(w); got != "" {
			t.Errorf("window %d again: %q", i, got)
		}
	}
}

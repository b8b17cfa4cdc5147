package hops

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops/hopstest"
)

// sights are what hosts counted, but for some.
func sights(w *hopstest.World, without ...string) (names []string, seen []Sight) {
	for key, r := range w.Records {
		if slices.Contains(without, key.Host) {
			continue
		}
		i := slices.Index(names, key.Host)
		if i < 0 {
			i = len(names)
			names, seen = append(names, key.Host), append(seen, Sight{})
		}
		// A bridge over an interface counts the packets of that once more.
		side := &seen[i].In
		if r.Direction == flow.Egress {
			side = &seen[i].Out
		}
		packets := r.Packets
		if key.Iface == "br0" {
			packets = 0
		}
		side.Add(r.TTLMax, packets, r.First.UnixNano())
	}
	return names, seen
}

// compareSources takes the agents off one host after the other, from the sender on: what is left begins where packets come to
// first, and each counts once.
func compareSources(t *testing.T, w *hopstest.World, way []hopstest.Hop) string {
	t.Helper()
	names, seen := sights(w)
	sources, unsure := Sources(seen, false)
	if len(sources) != 1 || names[sources[0]] != "alpha" || unsure {
		return fmt.Sprintf("sources %v of %v, unsure: %v", sources, names, unsure)
	}
	if len(way) < 3 || way[1].Bridge && len(way[1].Names) > 1 {
		return ""
	}
	names, seen = sights(w, "alpha")
	sources, unsure = Sources(seen, false)
	var got []string
	var packets, want uint64
	for _, i := range sources {
		got = append(got, names[i])
		packets += seen[i].In.Packets
	}
	for _, one := range w.Truth {
		if one.Kind == string(OnLink) && one.From == "alpha" {
			want += one.Received
		}
	}
	slices.Sort(got)
	first := slices.Sorted(slices.Values(way[1].Names))
	if unsure && way[1].Bridge && way[2].Bridge { // clocks decide, and differ
		return ""
	}
	if unsure || !slices.Equal(got, first) || packets != want {
		return fmt.Sprintf("without an agent at alpha: %d packets at %s (unsure: %v), want %d at %s", packets, strings.Join(got, "+"), unsure, want, strings.Join(first, "+"))
	}
	return ""
}

// TestSourcesThatLookAlike: hosts that packets leave, or pass, with one hop limit are divided or follow each other, as counts say.
func TestSourcesThatLookAlike(t *testing.T) {
	out := func(packets uint64, first int64) Sight { return Sight{Out: Side{true, 64, packets, first}} }
	in := func(ttl uint8, packets uint64) Sight { return Sight{In: Side{true, ttl, packets, 9}} }
	through := func(packets uint64, first int64) Sight {
		return Sight{In: Side{true, 64, packets, first}, Out: Side{true, 64, packets, first}}
	}
	for name, c := range map[string]struct {
		seen   []Sight
		copies bool
		want   []int
		unsure bool
	}{
		"two senders":                           {[]Sight{out(50, 2), out(40, 1), in(62, 88)}, false, []int{0, 1}, false},
		"a bridge that does not see them come":  {[]Sight{out(50, 2), out(50, 1), in(62, 49)}, false, []int{1}, true},
		"nobody sees them come":                 {[]Sight{out(50, 2), out(50, 1)}, false, []int{1}, true},
		"two bridges next to each other":        {[]Sight{through(50, 2), in(64, 90), through(40, 1)}, false, []int{0, 2}, false},
		"two bridges behind each other":         {[]Sight{through(50, 2), in(64, 50), through(50, 1)}, false, []int{2}, true},
		"two first routers":                     {[]Sight{in(64, 50), in(63, 80), in(64, 30)}, false, []int{0, 2}, false},
		"receivers of multicast":                {[]Sight{in(64, 50), in(64, 50)}, true, []int{0}, true},
		"a receiver of multicast, and a sender": {[]Sight{in(64, 50), out(50, 3), in(64, 50)}, true, []int{1}, false},
		"packets come back":                     {[]Sight{in(62, 50), {Out: Side{true, 64, 50, 1}, In: Side{true, 60, 50, 1}}}, false, []int{1}, false},
		"no hop limit was recorded":             {[]Sight{in(0, 50), {Out: Side{Seen: true, Packets: 50}}}, false, []int{1}, false},
	} {
		if got, unsure := Sources(c.seen, c.copies); !slices.Equal(got, c.want) || unsure != c.unsure {
			t.Errorf("%s: %v, unsure %v", name, got, unsure)
		}
	}
	for to, want := range map[string]bool{"ff02::fb": true, "239.1.1.1": true, "255.255.255.255": true, "10.0.0.255": false, "2001:db8::1": false} {
		if Copies(netip.MustParseAddr(to)) != want {
			t.Errorf("copies to %s: %v", to, !want)
		}
	}
}

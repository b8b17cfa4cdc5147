package ioam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
)

// narrowTunnel: a link takes less than the interfaces say, and nothing reports it. Datagrams that it takes arrive, as they do
// without options: those that would be too long behind an outer header go without one, both ways, and so they do when the
// link becomes narrow while all of them are in the tunnel, but for as long as an answer is believed.
func (d *domain) narrowTunnel() {
	sizes := []int{200, 1100, 1300, 1400}
	beta, alpha := d.Host("beta"), d.Host("alpha")
	send := func(what string, size int, from, to *lab.Host) uint64 {
		d.t.Helper()
		u, err := traffic.Datagrams(d.t.Context(), from, to, traffic.DatagramConfig{To: netip.AddrPortFrom(to.Addr6(), 9), Count: 20, Size: size, Flows: 2, Idle: 200 * time.Millisecond})
		if err != nil {
			d.t.Errorf("%s: %v", what, err)
		}
		return u.Distinct
	}
	all := func(what string) {
		d.t.Helper()
		for _, size := range sizes {
			for _, way := range [][2]*lab.Host{{alpha, beta}, {beta, alpha}} {
				if n := send(what, size, way[0], way[1]); n != 20 {
					d.t.Errorf("%s: %d of 20 datagrams of %d bytes arrived from %s", what, n, size, way[0].Name)
				}
			}
		}
	}
	narrow := func() (undo func()) {
		long := d.program(longer)
		a := d.attach("porthos", "to-athos", long, ebpf.AttachTCXIngress, link.Head())
		b := d.attach("porthos", "to-aramis", long, ebpf.AttachTCXIngress, link.Head())
		return func() { a(); b() }
	}
	d.must(d.SetOffloads(lab.VethDefault, false))
	defer func() { d.must(d.SetOffloads(lab.VethDefault, true)) }()
	undo := narrow()
	d.insert(0, 1)
	all("narrow, without options")
	d.insert(1, 1)
	d.tunnelIs("open on a narrow path", true)
	all("narrow")
	undo()
	// As long as a datagram of 1400 bytes behind the outer header.
	known := func(is func(longest int) bool) bool {
		ok := true
		for _, name := range []string{"athos", "aramis"} {
			slot := d.nodes[name].kept[d.with[name].Insertions[0].Identity()].slot
			d.must(d.nodes[name].do(func() error {
				ok = ok && is(int(d.nodes[name].control.Longest[slot]))
				return nil
			}))
		}
		return ok
	}
	d.insert(0, 1)
	d.insert(1, 1) // what was known of the narrow path is forgotten
	await.True(d.t, "long packets to be known to arrive", func() bool { return known(func(n int) bool { return n > 1600 }) })
	before := d.countsOf(d.nodes["athos"])
	all("wide")
	if now := d.countsOf(d.nodes["athos"]).since(before); now["inserted"] < 80 {
		d.t.Errorf("not in the tunnel, which takes all: %v", now)
	}
	defer narrow()()
	await.True(d.t, "the path to be known as narrow", func() bool { return known(func(n int) bool { return n < 1500 }) })
	all("narrow again")
	await.True(d.t, "the longest packets that the link takes to be known", func() bool { return known(func(n int) bool { return n > 1500-2*lengthStep }) })
	all("narrow, and known")
}

// The longest packet that a path takes is found, but for a few bytes, whatever is lost on it; when it becomes narrower, longer
// ones are believed to arrive no longer than an answer is, and when it becomes wider, this is found in time.
func TestLengths(t *testing.T) {
	const second, mtu = uint64(time.Second), 9000
	l := &lengths{}
	now := uint64(time.Hour)
	round := func(limit int, arrives bool) {
		if l.asked > 0 {
			l.missed(now)
		}
		if n := l.next(mtu, now); n > 0 && n <= limit && arrives {
			l.answered(n, now)
		}
		now += second
	}
	found := func(what string, limit int) {
		t.Helper()
		for range 100 {
			round(limit, true)
			if got := int(l.longest(now)); got > limit {
				t.Fatalf("%s: %d bytes, the path takes %d", what, got, limit)
			}
		}
		for range 20 { // it stays so, also while a longer one is tried
			round(limit, true)
			if got := int(l.longest(now)); got > limit || limit > leastMTU+lengthStep && got < limit-lengthStep {
				t.Fatalf("%s: %d bytes, the path takes %d: %+v", what, got, limit, l)
			}
		}
	}
	for _, limit := range []int{mtu, 1500, 1492, 1281, leastMTU, 4470, mtu} {
		for range 3 { // an answer is believed so long
			round(limit, true)
		}
		found(fmt.Sprint("a path of ", limit), limit)
		now += uint64(lengthForgotten) // so that the next one, if wider, is looked for
	}
	for n := range 60 { // one of five is lost, whatever its length
		round(mtu, n%5 > 0)
	}
	if got := int(l.longest(now)); got != mtu {
		t.Errorf("with losses: %d bytes of %d: %+v", got, mtu, l)
	}
	if got := l.next(1400, now); got > 1400 {
		t.Errorf("%d bytes to a route of 1400", got)
	}
}

package ioam

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// tally is what all nodes counted, by what.
type tally map[string]uint64

func (a tally) since(b tally) tally {
	out := tally{}
	for what, n := range a {
		if n != b[what] {
			out[what] = n - b[what]
		}
	}
	return out
}

func (d *domain) counts() tally {
	d.t.Helper()
	all := tally{}
	for _, r := range d.nodes {
		for what, n := range d.countsOf(r) {
			all[what] += n
		}
	}
	return all
}

func (d *domain) countsOf(r *Registrar) tally {
	d.t.Helper()
	out := tally{}
	inserted, err := r.InsertionCounts()
	d.must(err)
	for _, c := range inserted {
		out["chosen"] += c.Chosen
		out["named"] += c.Named
		out["inserted"] += c.Inserted
	}
	s, err := r.Stats()
	d.must(err)
	out["removed"], out["unwrapped"] = s.Removed, s.Unwrapped
	for why, n := range reasons(d.t, r) {
		out[why] = n
	}
	return out
}

func (d *domain) faults() map[string]uint64 {
	all := map[string]uint64{}
	for _, h := range d.Hosts() {
		for name, n := range marktest.Faults(d.t, h) {
			if name != "Ip6InTooBigErrors" { // what a router reports, as it should
				all[h.Name+" "+name] = n
			}
		}
	}
	return all
}

// counted: of one packet in three, those that got options are exactly those that lose them at the other end.
func (d *domain) counted() {
	d.t.Helper()
	d.must(d.SetOffloads(lab.VethDefault, false))
	d.insert(1, 3)
	before := map[string]tally{}
	for name, r := range d.nodes {
		before[name] = d.countsOf(r)
	}
	d.exchange("one in three", 2<<20)
	for name, end := range map[string]string{"alpha": "beta", "beta": "alpha", "athos": "aramis", "aramis": "athos"} {
		await.Success(d.t, func() error {
			sent, got := d.countsOf(d.nodes[name]).since(before[name]), d.countsOf(d.nodes[end]).since(before[end])
			ended, options := got["removed"]-got["unwrapped"], sent["inserted"]*2 // a trace and an edge-to-edge option
			if name == "athos" || name == "aramis" {
				ended, options = got["unwrapped"], sent["inserted"]
			}
			slack := uint64(2 * runtime.NumCPU())
			if ended != options || sent["inserted"] == 0 || sent["chosen"]*3 > sent["named"]+3*slack || sent["chosen"]*3+3*slack < sent["named"] {
				return fmt.Errorf("%s: %v; %d of %d options ended at %s", name, sent, ended, options, end)
			}
			return nil
		})
	}
	d.must(d.SetOffloads(lab.VethDefault, true))
}

// errorsGoUnmarked: an ICMPv6 error gets no options, neither where it is made nor where it is forwarded.
func (d *domain) errorsGoUnmarked() {
	d.insert(1, 1)
	alpha, beta := d.Host("alpha"), d.Host("beta")
	d.must(alpha.Do(func() error {
		c, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(beta.Addr6(), 1)))
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write(make([]byte, 1100)); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("reading: %w", err)
		}
		return nil
	}))
	for _, name := range []string{"beta", "aramis"} {
		await.Success(d.t, func() error {
			if why := reasons(d.t, d.nodes[name]); why["not_inserted_icmp_error"] == 0 {
				return fmt.Errorf("%s: %v", name, why)
			}
			return nil
		})
	}
}

package ioam

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/wire/pdm"
)

// narrowed: a link takes less than packets with options have, and more than they have without. Its router reports the
// former, which is no news for a host that sends the latter: what the host is shown is what options leave of it.
// So no segment waits for a timeout, and those that follow have options again.
func (ps *probes) narrowed(t *testing.T, withPDM bool) (disturbed string) {
	const narrow = 1450
	l := datapathtest.NewLab(t, lab.Config{Topology: "chain", MTU: 1500})
	for _, end := range [][2]string{{"porthos", "to-aramis"}, {"aramis", "to-porthos"}} {
		if err := l.Host(end[0]).Do(func() error { return marktest.SetMTU(end[1], narrow) }); err != nil {
			t.Fatal(err)
		}
	}
	alpha, beta := l.Host("alpha"), l.Host("beta")
	transfer := func() (timeouts uint64) {
		before := counterOf(t, alpha, "netstat", "TCPTimeouts")
		if _, err := traffic.Bulk(t.Context(), alpha, beta, traffic.BulkConfig{To: netip.AddrPortFrom(beta.Addr6(), 7000), Bytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		return counterOf(t, alpha, "netstat", "TCPTimeouts") - before
	}
	plain := transfer()
	i := ps.inserts(t, alpha, headroom.Interface, withPDM, trace72(t))
	known := []string{"mark_paths", "ioam_guards"}
	if withPDM {
		known = append(known, "pdm_states", "pdm_near")
	}
	// learn makes transfers until there is a report: not each of them puts a long segment at risk.
	learn := func() (timeouts uint64) {
		marktest.Command(t, alpha, "ip", "-6", "route", "flush", "cache")
		emptyMaps(t, i.node, known...)
		before := counterOf(t, alpha, "snmp6", "Icmp6InPktTooBigs")
		await.True(t, "Packet Too Big", func() bool {
			timeouts = transfer()
			return counterOf(t, alpha, "snmp6", "Icmp6InPktTooBigs") > before
		})
		return timeouts
	}
	timeouts := learn()
	for try := 0; timeouts > plain && try < 5; try++ { // on a busy machine there is one now and then
		timeouts = learn()
	}
	if timeouts > plain {
		t.Errorf("%d timeouts, without options %d", timeouts, plain)
	}
	left := narrow - i.own.Reserve()
	if withPDM {
		left -= pdm.HeaderSize
	}
	out, err := alpha.Run(t.Context(), "ip", "-6", "route", "get", beta.Addr6().String())
	if err != nil || !strings.Contains(string(out), fmt.Sprintf(" mtu %d ", left)) {
		t.Errorf("want an MTU of %d, %v:\n%s%+v", left, err, out, i.outcome(t))
	}
	before := i.outcome(t)
	transfer()
	switch o := i.outcome(t); {
	case o.Fallbacks > 0:
		return fmt.Sprintf("%+v", o)
	case o.Marked < before.Marked+400:
		t.Errorf("%+v, before %+v", o, before)
	}
	return ""
}

// counterOf is a counter of a host, by its file in /proc/net and its name.
func counterOf(t *testing.T, h *lab.Host, file, name string) (n uint64) {
	t.Helper()
	if err := h.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil {
			return err
		}
		lines := strings.Split(string(b), "\n")
		for k, line := range lines {
			f := strings.Fields(line)
			if len(f) == 2 && f[0] == name { // name and value
				_, err = fmt.Sscan(f[1], &n)
			} else if at := slices.Index(f, name); at > 0 { // names, and values in the next line
				_, err = fmt.Sscan(strings.Fields(lines[k+1])[at], &n)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

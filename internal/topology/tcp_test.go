package topology_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/await"
)

// TestSegments: a SYN that nobody answers is sent again, and counted in its namespace alone; the
// kernel names the connection. A veth has no speed.
func TestSegments(t *testing.T) {
	l := labtest.New(t, lab.Config{Topology: "pair"})
	alpha, beta := l.Host("alpha"), l.Host("beta")
	if out, err := beta.Run(t.Context(), "nft", "table inet dead { chain in { type filter hook input priority 0; tcp dport 8080 drop; }; }"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := startWatch(t, alpha.Netns, topology.Config{Interfaces: []string{"lo"}, Netns: []string{beta.Netns}, Linger: time.Minute})
	r.expect(t, "added lo", "added "+beta.Netns+"/lo", "synced")
	counted := func(netns string) (s topology.Segments) {
		for _, one := range r.Segments() {
			if one.Netns == netns {
				s = one
			}
		}
		return s
	}
	before, other := counted(""), counted(beta.Netns)
	dialed := make(chan error, 1)
	go func() {
		dialed <- alpha.Do(func() error {
			d := net.Dialer{Timeout: 3 * time.Second}
			c, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort(beta.Addr4().String(), "8080"))
			if err == nil {
				c.Close()
			}
			return nil
		})
	}()
	await.True(t, "a SYN that is sent again", func() bool {
		now := counted("")
		return now.Sent > before.Sent && now.Retransmitted > before.Retransmitted
	})
	await.True(t, "the connection", func() bool {
		open, err := r.Connections("")
		if err != nil {
			t.Fatal(err)
		}
		return len(open) == 1 && open[0].Remote.Addr() == beta.Addr4() && open[0].Remote.Port() == 8080 && open[0].Retransmitted > 0 && open[0].Timeouts > 0 && open[0].Open == 1
	})
	if now := counted(beta.Netns); now.Retransmitted != other.Retransmitted {
		t.Errorf("%+v, was %+v", now, other)
	}
	if err := <-dialed; err != nil {
		t.Error(err)
	}
	if speed := r.Speed("", "to-beta"); speed != 0 {
		t.Errorf("a veth has a speed of %d", speed)
	}
	if _, err := r.Connections("nowhere"); err == nil || !strings.Contains(err.Error(), "not watched") {
		t.Errorf("%v", err)
	}
}

// TestSpeed: the speed of a physical interface is the one in /sys, where that has one.
func TestSpeed(t *testing.T) {
	physical, err := filepath.Glob("/sys/class/net/*/device")
	if err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, "", topology.Config{Interfaces: []string{"lo"}, Linger: time.Minute})
	await.True(t, "the links", func() bool { return len(w.Links()) > 0 })
	for _, l := range w.Links() {
		want := uint64(0)
		text, err := os.ReadFile("/sys/class/net/" + l.Name + "/speed")
		if mbit, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil && bad == nil && slices.Contains(physical, "/sys/class/net/"+l.Name+"/device") {
			want = mbit * 1e6
		}
		if got := w.Speed(l.Netns, l.Name); got != want {
			t.Errorf("%s: %d, want %d", l.Name, got, want)
		}
	}
}

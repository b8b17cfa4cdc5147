package capture

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/await"
)

// end is one end of a veth pair, in a namespace of its own.
type end struct {
	t *testing.T
	*lab.Host
	link  netlink.Link
	iface flow.Iface
}

// quietPair is a veth pair between two new namespaces that send nothing by
// themselves: no addresses, no IPv6.
func quietPair(t *testing.T, mtu int) (a, b *end) {
	t.Helper()
	ends := [2]*end{}
	for i := range ends {
		ends[i] = &end{t: t, Host: labtest.NewHost(t)}
		ends[i].do(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
		})
	}
	far, err := topology.OpenNetns(ends[1].Netns)
	must(t, err)
	defer far.Close()
	ends[0].do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: "wm0", MTU: mtu, Flags: 0},
			PeerName:      "wm1",
			PeerMTU:       uint32(mtu),
			PeerNamespace: netlink.NsFd(far.Fd()),
		})
	})
	for i, e := range ends {
		e.do(func() (err error) {
			if e.link, err = netlink.LinkByName(fmt.Sprintf("wm%d", i)); err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetARPOff(e.link), netlink.LinkSetUp(e.link))
		})
		e.iface = flow.NewIface(uint32(i+1), uint32(e.link.Attrs().Index))
	}
	return ends[0], ends[1]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do runs f in the namespace of the end.
func (e *end) do(f func() error) {
	e.t.Helper()
	must(e.t, e.Do(f))
}

func (e *end) target() Target {
	return Target{
		Iface: e.iface, Name: e.Netns + "/" + e.link.Attrs().Name,
		Do: e.Do,
	}
}

// counters are the interface's own.
func (e *end) counters() netlink.LinkStatistics {
	e.t.Helper()
	var s netlink.LinkStatistics
	e.do(func() error {
		l, err := netlink.LinkByIndex(e.link.Attrs().Index)
		if err == nil {
			s = *l.Attrs().Statistics
		}
		return err
	})
	return s
}

// load is a probe that is attached to the ends and closed with the test.
func load(t *testing.T, cfg Config, deps Deps, ends ...*end) *Capture {
	t.Helper()
	c := New(cfg, deps)
	must(t, c.Load())
	t.Cleanup(func() { must(t, c.Close()) })
	for _, e := range ends {
		must(t, c.Attach(e.target()))
	}
	return c
}

// arrived waits until so many frames in all have been read from the rings, or found them full: what a test has sent may
// still be on its way.
func arrived(t *testing.T, c *Capture, frames uint64) {
	t.Helper()
	await.True(t, "frames that were sent", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		must(t, c.settle(slices.Collect(maps.Values(c.rings)), retireAfter))
		var n uint64
		for _, r := range c.rings {
			n += r.consumed
		}
		for _, amounts := range c.meter.counts {
			n += amounts[reasonRingFull].frames
		}
		return n >= frames
	})
}

// drained is all that was counted since the last drain, by key, without times.
func drained(t *testing.T, c *Capture) map[flow.Key]flow.Counts {
	t.Helper()
	got := map[flow.Key]flow.Counts{}
	must(t, c.Drain(func(d *flow.Delta) {
		if d.First == 0 || d.First > d.Last {
			t.Errorf("times of %+v: first %d, last %d", d.Key, d.First, d.Last)
		}
		if age := time.Since(time.Unix(0, d.Last)); age < 0 || age > time.Minute {
			t.Errorf("last packet of %+v was %v ago", d.Key, age)
		}
		counts := d.Counts
		counts.First, counts.Last = 0, 0
		got[d.Key] = counts
	}))
	return got
}

// uncounted is the running totals of frames by reason, over all interfaces.
func uncounted(t *testing.T, c *Capture) map[string]uint64 {
	t.Helper()
	got := map[string]uint64{}
	for _, list := range []func() ([]flow.Uncounted, error){c.Uncounted, c.Incomplete} {
		all, err := list()
		must(t, err)
		for _, u := range all {
			got[u.Reason] += u.Frames
		}
	}
	return got
}

// sender sends frames out of the interface.
func (e *end) sender() *labtest.Sender {
	e.t.Helper()
	return labtest.NewSender(e.t, e.Host, e.link.Attrs().Name)
}

// keysOf are sorted so that messages are the same in every run.
func keysOf[V any](m map[flow.Key]V) []flow.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b flow.Key) int {
		return byKey(flow.Delta{Key: a}, flow.Delta{Key: b})
	})
}

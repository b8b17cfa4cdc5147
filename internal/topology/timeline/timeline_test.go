package timeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/await"
)

var epoch = time.Date(2026, 1, 2, 14, 0, 0, 0, time.UTC)

// graph has one interface.
func graph(name string) Graph {
	return Build(Sources{Host: "alpha", Links: topology.Graph{Netns: []string{""}, Nodes: []topology.Node{{Link: topology.Link{Name: name, Kind: "physical", IfIndex: 2, Up: true}}}}})
}

func note(t *testing.T, l *Timeline, at time.Time, g Graph, want bool) {
	t.Helper()
	if changed, err := l.Note(at, g); err != nil || changed != want {
		t.Fatalf("at %s: changed %t, %v; want %t", at, changed, err, want)
	}
}

func nameAt(t *testing.T, l *Timeline, at time.Time) string {
	t.Helper()
	g, err := l.At(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range g.Nodes {
		if n.Kind == Iface {
			return n.Name
		}
	}
	return ""
}

// TestAt: each moment has the version that began last, also after a restart; the same state is one version.
func TestAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topology.jsonl.gz")
	l := New(1 << 20)
	if _, err := l.At(time.Time{}); !errors.Is(err, ErrBefore) {
		t.Errorf("before anything: %v", err)
	}
	if _, err := l.Keep(path); err != nil {
		t.Fatal(err)
	}
	note(t, l, epoch, graph("one"), true)
	note(t, l, epoch.Add(time.Minute), graph("one"), false)
	note(t, l, epoch.Add(2*time.Minute), graph("two"), true)
	again := New(1 << 20)
	if torn, err := again.Keep(path); torn != 0 || err != nil {
		t.Fatal(torn, err)
	}
	note(t, again, epoch.Add(3*time.Minute), graph("two"), false) // it is as it was before the restart
	hidden := graph("two")
	hidden.Hidden = 7
	note(t, again, epoch.Add(3*time.Minute), hidden, false)
	note(t, again, epoch.Add(4*time.Minute), graph("one"), true)
	for _, x := range []struct {
		l    *Timeline
		at   time.Time
		want string
	}{
		{l, epoch, "one"},
		{l, epoch.Add(119 * time.Second), "one"},
		{l, epoch.Add(2 * time.Minute), "two"},
		{l, time.Time{}, "two"},
		{again, epoch.Add(time.Second), "one"},
		{again, epoch.Add(3 * time.Minute), "two"},
		{again, time.Time{}, "one"},
	} {
		if got := nameAt(t, x.l, x.at); got != x.want {
			t.Errorf("at %s: %s, want %s", x.at, got, x.want)
		}
	}
	if _, err := l.At(epoch.Add(-time.Second)); !errors.Is(err, ErrBefore) || !strings.Contains(err.Error(), "the oldest version is of") {
		t.Errorf("before the first: %v", err)
	}
	note(t, again, epoch, graph("three"), true) // the clock was set back
	if got := nameAt(t, again, time.Time{}); got != "three" {
		t.Errorf("after a step of the clock: %s", got)
	}
	out, err := exec.Command("zcat", path).Output()
	if err != nil || strings.Count(string(out), "\n") != 4 {
		t.Errorf("zcat: %v, %d lines", err, strings.Count(string(out), "\n"))
	}
}

// TestTorn: whatever was written last before a kill, the versions in front of it are read, and the next one is behind them.
func TestTorn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "whole")
	l := New(1 << 20)
	if _, err := l.Keep(path); err != nil {
		t.Fatal(err)
	}
	note(t, l, epoch, graph("one"), true)
	first := l.versions[0].data
	note(t, l, epoch.Add(time.Minute), graph("two"), true)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for end := range data {
		cut := filepath.Join(dir, fmt.Sprint(end))
		if err := os.WriteFile(cut, data[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		l := New(1 << 20)
		torn, err := l.Keep(cut)
		want := end
		if end >= len(first) {
			want -= len(first)
		}
		if err != nil || torn != want {
			t.Fatalf("cut at %d: %d bytes torn, want %d, %v", end, torn, want, err)
		}
		note(t, l, epoch.Add(2*time.Minute), graph("three"), true)
		again := New(1 << 20)
		if torn, err := again.Keep(cut); torn != 0 || err != nil || nameAt(t, again, time.Time{}) != "three" || len(again.versions) != len(l.versions) {
			t.Fatalf("cut at %d, after the next version: %d, %v", end, torn, err)
		}
	}
}

// TestBound: memory and file stay below their bounds, and the newest versions stay.
func TestBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topology")
	const size = 4 << 10
	l := New(size)
	if _, err := l.Keep(path); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		note(t, l, epoch.Add(time.Duration(i)*time.Second), graph(fmt.Sprint("eth", i)), true)
		if info, err := os.Stat(path); err != nil || l.bytes > size || info.Size() > 2*size {
			t.Fatalf("after %d: %d bytes in memory, %v", i, l.bytes, err)
		}
	}
	s := l.Status()
	if s.Removed == 0 || s.Versions+s.Removed != 200 || nameAt(t, l, epoch.Add(199*time.Second)) != "eth199" {
		t.Errorf("%+v", s)
	}
	if _, err := l.At(epoch); !errors.Is(err, ErrBefore) {
		t.Errorf("what made room: %v", err)
	}
}

// TestFollow: a change has what is new, gone, or connected differently.
func TestFollow(t *testing.T) {
	l := New(1 << 20)
	note(t, l, epoch, graph("one"), true)
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan Change, 1)
	done := make(chan error, 1)
	go func() { done <- l.Follow(ctx, func(c Change) { changes <- c }) }()
	await.True(t, "a follower", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.watchers) == 1
	})
	note(t, l, epoch.Add(time.Second), graph("two"), true)
	want := Change{Time: epoch.Add(time.Second), Added: []string{"interface//two"}, Removed: []string{"interface//one"}, Changed: []string{}}
	if diff := cmp.Diff(want, <-changes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	down := graph("two")
	down.Nodes[1].Up = false
	note(t, l, epoch.Add(2*time.Second), down, true)
	if c := <-changes; len(c.Changed) != 1 || len(c.Added)+len(c.Removed) != 0 {
		t.Errorf("%+v", c)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestUse: rates between two readings, and what did not arrive at the other end of a pair.
func TestUse(t *testing.T) {
	g := Build(known())
	port := func(netns string, index uint32) flow.Port { return flow.Port{Netns: netns, IfIndex: index} }
	var m Meter
	m.Note(epoch, map[flow.Port]topology.Counters{port("", 2): {RxBytes: 1000}, port("", 4): {TxPackets: 10}, port("blue", 2): {RxPackets: 10}})
	if list := m.Use(&g, nil); len(list) != 0 {
		t.Errorf("after one reading: %v", list)
	}
	m.Note(epoch.Add(2*time.Second), map[flow.Port]topology.Counters{
		port("", 2): {RxBytes: 251000, TxDropped: 4}, port("", 4): {TxPackets: 110}, port("blue", 2): {RxPackets: 107},
	})
	got := map[string]Use{}
	for _, u := range m.Use(&g, func(_, iface string) uint64 { return map[string]uint64{"eth0": 10_000_000}[iface] }) {
		got[u.ID] = u
	}
	if u := got["interface//eth0"]; u.RxBits != 1_000_000 || u.Utilisation != 0.1 || u.TxDropped != 2 {
		t.Errorf("eth0: %+v", u)
	}
	if u := got["interface//v1"]; u.Sent != 100 || u.Lost != 3 {
		t.Errorf("v1: %+v", u)
	}
	if before, after := graph("one"), graph("one"); !cmp.Equal(before, after) {
		t.Error("a graph has changed by being read")
	}
}

// TestRecent: a neighbour that the kernel forgot stays for a while.
func TestRecent(t *testing.T) {
	var r Recent
	n := topology.Neighbour{IfIndex: 2, MAC: "02:00:00:00:01:01", Source: topology.ARP}
	for after, want := range map[time.Duration]int{0: 1, lingers: 1, lingers + 1: 0} {
		r = Recent{}
		r.Merge(epoch, []topology.Neighbour{n})
		if got := r.Merge(epoch.Add(after), nil); len(got) != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
}

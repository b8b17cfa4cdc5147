package topology_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/topology"
)

// On a host where no namespace ever had a name, the directory is not there. Then
// it comes, with a name that is no namespace for a moment.
func TestDirectoryThatComesLater(t *testing.T) {
	own, other := addNetns(t, "own"), addNetns(t, "other")
	in(t, other, func() error { return addVeth("v0", "v1") })
	dir := filepath.Join(t.TempDir(), "netns")
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v0"}, Netns: []string{topology.AllNetns}, Linger: time.Minute},
		func(w *watch) { w.SetDirectory(dir) })
	w.expect(t, "synced")

	name := filepath.Join(dir, netnsPrefix+"name")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(name, nil, 0o444)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(filepath.Join(topology.NetnsDir, other), name, "none", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	mounted := true
	t.Cleanup(func() {
		if mounted {
			_ = unix.Unmount(name, unix.MNT_DETACH)
		}
	})
	w.expect(t, "added name/v0")

	// A second name of the same namespace is no second namespace; it takes over
	// when the first goes.
	alias := filepath.Join(dir, netnsPrefix+"same")
	if err := os.WriteFile(alias, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(name, alias, "none", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(alias, unix.MNT_DETACH) })
	if err := errors.Join(unix.Unmount(name, unix.MNT_DETACH), os.Remove(name)); err != nil {
		t.Fatal(err)
	}
	mounted = false
	w.expect(t, "removed name/v0", "added same/v0")
}

// More namespaces than numbers: the one too many is refused once, with a report, and
// taken in when a number is free.
func TestRefusesOneNamespaceTooMany(t *testing.T) {
	own, first := addNetns(t, "own"), addNetns(t, "first")
	in(t, first, func() error { return addVeth("v0", "v1") })
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v0"}, Netns: []string{netnsPrefix + "*"}},
		func(w *watch) { w.UseUpNumbers(2) })
	w.expect(t, "added first/v0", "synced")

	second := addNetns(t, "second")
	in(t, second, func() error { return addVeth("v0", "v1") })
	if e := <-w.events; e.Kind != topology.Refused || !errors.Is(e.Err, topology.ErrTooManyNetns) || e.Link.Netns != second {
		t.Fatalf("event %s %+v, want the refusal of %s", e.Kind, e, second)
	}
	in(t, first, func() error { return byName("v0", netlink.LinkDel) })
	w.expect(t, "removed first/v0") // no second refusal before it
	deleteNetns(t, first)
	w.expect(t, "added second/v0")
}

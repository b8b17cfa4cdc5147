// Package labtest makes labs and single hosts that are deleted with the test. Only tests call it.
package labtest

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/lab"
)

// made numbers what this process has made.
var made atomic.Uint32

// Prefix is for names that no other test has.
func Prefix() string { return fmt.Sprintf("wmt%d-%d-", os.Getpid(), made.Add(1)) }

// New makes a lab. Its prefix is [Prefix], unless the configuration has one.
func New(t testing.TB, cfg lab.Config) *lab.Lab {
	t.Helper()
	needRoot(t)
	if cfg.Prefix == "" {
		cfg.Prefix = Prefix()
	}
	l, err := lab.Up(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// NewHost makes a host that has its loopback interface only, and that down.
func NewHost(t testing.TB) *lab.Host {
	t.Helper()
	return NamedHost(t, Prefix()+"solo")
}

// NamedHost is NewHost with a name, which the caller may change with the namespace's.
func NamedHost(t testing.TB, netns string) *lab.Host {
	t.Helper()
	needRoot(t)
	h := &lab.Host{Name: "solo", Netns: netns}
	if err := lab.AddNetns(h.Netns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.DeleteNetns(h.Netns); err != nil {
			t.Error(err)
		}
	})
	return h
}

// UpHost is NewHost with the loopback interface up.
func UpHost(t testing.TB) *lab.Host {
	t.Helper()
	h := NewHost(t)
	if err := h.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}); err != nil {
		t.Fatal(err)
	}
	return h
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
}

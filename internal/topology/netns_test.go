package topology_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/await"
)

func TestDoStaysInItsNamespaceAndLeaksNoThread(t *testing.T) {
	own := addNetns(t, "own")
	ns, err := topology.OpenNetns(own)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	home, err := topology.StatNetns("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // so that the runtime has the threads it wants
		in(t, own, func() error { return nil })
	}
	before := len(threads(t))
	for range 500 {
		if err := ns.Do(func() error {
			if here, err := topology.StatNetns("/proc/thread-self/ns/net"); err != nil || here != ns.ID() {
				return fmt.Errorf("in namespace %v, want %v: %w", here, ns.ID(), err)
			}
			links, err := net.Interfaces()
			if len(links) != 1 {
				return fmt.Errorf("links in a new namespace: %v", links)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if after := len(threads(t)); after > before+50 { // of 500 calls
		t.Errorf("%d threads before, %d after", before, after)
	}
	if n := strays(t, home); n > 0 {
		t.Errorf("%d threads are in another namespace", n)
	}
}

func threads(t *testing.T) []string {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// strays counts the threads of this process that are not at home.
func strays(t *testing.T, home topology.NetnsID) int {
	t.Helper()
	n := 0
	for _, task := range threads(t) {
		if at, err := topology.StatNetns(task); err == nil && at != home {
			n++
		}
	}
	return n
}

// What fn does to its thread must not reach other goroutines: without privilege
// the thread cannot go home, and so must end. That holds for whatever thread
// the runtime chooses, so it is done often.
func TestThreadThatCannotGoHomeEnds(t *testing.T) {
	own, other := addNetns(t, "own"), addNetns(t, "other")
	home, err := topology.StatNetns("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		var stayed, entered error
		in(t, own, func() error {
			hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			if err := unix.Capset(&hdr, &none[0]); err != nil {
				return err
			}
			for name, result := range map[string]*error{"": &stayed, other: &entered} {
				ns, err := topology.OpenNetns(name)
				if err != nil {
					return err
				}
				*result = ns.Enter()
				ns.Close()
			}
			return nil
		})
		if stayed != nil {
			t.Errorf("entering the namespace that one is in takes privilege: %v", stayed)
		}
		if !errors.Is(entered, unix.EPERM) || !strings.Contains(entered.Error(), "CAP_SYS_ADMIN") {
			t.Errorf("entering without privilege: %v, want EPERM with the remedy", entered)
		}
	}
	// The last thread ends on its own time.
	await.Success(t, func() error {
		if n := strays(t, home); n > 0 {
			return fmt.Errorf("%d threads stayed in the namespace", n)
		}
		return nil
	})
}

func TestDoPassesGoexitOn(t *testing.T) {
	own := addNetns(t, "own")
	returned := make(chan bool, 1)
	go func() {
		defer close(returned)
		_ = topology.InNetns(own, func() error { runtime.Goexit(); return nil })
		returned <- true
	}()
	if <-returned {
		t.Error("the caller went on though fn ended its goroutine")
	}
}

func TestOpenNetnsErrors(t *testing.T) {
	if _, err := topology.OpenNetns("no-such-namespace"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "ip netns list") {
		t.Errorf("a name that does not exist: %v", err)
	}
	own := addNetns(t, "own") // so that the directory exists
	plain := filepath.Join(topology.NetnsDir, own+"-plain")
	if err := os.WriteFile(plain, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(plain)
	if _, err := topology.OpenNetns(own + "-plain"); !errors.Is(err, topology.ErrNotNetns) {
		t.Errorf("a plain file: %v, want ErrNotNetns", err)
	}
	if err := lab.AddNetns(own); !errors.Is(err, os.ErrExist) {
		t.Errorf("make a namespace that exists: %v", err)
	}
}

// AddNetns changes the namespace of a thread that asked for none to be changed.
func TestDoGoesHomeFromWhereverFnWent(t *testing.T) {
	own, other := addNetns(t, "own"), addNetns(t, "other")
	home, err := topology.StatNetns("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", own} {
		in(t, name, func() error {
			ns, err := topology.OpenNetns(other)
			if err != nil {
				return err
			}
			defer ns.Close()
			return ns.Enter()
		})
		if n := strays(t, home); n > 0 {
			t.Errorf("%d threads are in another namespace", n)
		}
	}
}

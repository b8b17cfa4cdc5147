package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/topology"
)

// stopGrace is how long processes on the hosts may take to end by themselves:
// the agent drains and exports within five seconds.
const stopGrace = 6 * time.Second

// Down takes away the lab of that prefix: processes that live on its hosts,
// links, namespaces and files. It goes by what exists, so that it also clears up
// after an Up that was killed half way, and may be called again. A lab that is
// not there is fine.
func Down(prefix string) error {
	if err := validatePrefix(prefix); err != nil {
		return err
	}
	st, err := readState(prefix)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	names, err := existingNetns(prefix)
	if err != nil {
		return err
	}
	if st == nil && len(names) == 0 {
		return removeFiles(prefix)
	}
	if err := checkPrivilege(); err != nil {
		return err
	}
	if st != nil && !st.Complete && st.Builder.PID != os.Getpid() && st.Builder.Alive() {
		return fmt.Errorf("lab with prefix %q is being made by process %d: wait for it, or stop it first", prefix, st.Builder.PID)
	}
	if st != nil && st.Relay != nil {
		if err := st.Relay.Stop(stopGrace); err != nil {
			return fmt.Errorf("stop relay: %w", err)
		}
	}
	errs := []error{stopProcesses(names)}
	for _, clear := range []func(string) error{deleteLinks, DeleteNetns} {
		for _, name := range names {
			errs = append(errs, clear(name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lab with prefix %q: %w", prefix, err)
	}
	return removeFiles(prefix)
}

// existingNetns are the names that hosts of this lab have, or would have.
func existingNetns(prefix string) ([]string, error) {
	var names []string
	for _, h := range hostNames() {
		_, err := os.Lstat(filepath.Join(topology.NetnsDir, prefix+h))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for host %s: %w", h, err)
		}
		names = append(names, prefix+h)
	}
	return names, nil
}

// inhabited opens the namespace of that name, unless it is none (any more) or
// init's own, bound to the name by hand: what is in there is not a lab's.
func inhabited(name string) (*topology.Netns, error) {
	ns, err := topology.OpenNetns(name)
	if errors.Is(err, topology.ErrNotNetns) || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if id, err := topology.StatNetns("/proc/1/ns/net"); err == nil && id == ns.ID() {
		ns.Close()
		return nil, nil
	}
	if id, err := topology.StatNetns("/proc/thread-self/ns/net"); err == nil && id == ns.ID() {
		ns.Close()
		return nil, fmt.Errorf("this process runs on the host %s itself: call from outside of the lab", name)
	}
	return ns, nil
}

// stopProcesses ends everything that lives on the hosts, all at the same time.
func stopProcesses(names []string) error {
	homes := map[topology.NetnsID]bool{}
	for _, name := range names {
		ns, err := inhabited(name)
		if err != nil {
			return err
		}
		if ns == nil {
			continue
		}
		homes[ns.ID()] = true
		ns.Close()
	}
	processes, err := processesIn(homes)
	if err != nil {
		return err
	}
	errs := make([]error, len(processes))
	var wg sync.WaitGroup
	for i, p := range processes {
		wg.Go(func() { errs[i] = p.Stop(stopGrace) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// deleteLinks takes the links away at once: a namespace that lost its name lives
// on while somebody has it open, and its links with it.
func deleteLinks(name string) error {
	ns, err := inhabited(name)
	if err != nil || ns == nil {
		return err
	}
	defer ns.Close()
	return ns.Do(func() error {
		links, err := topology.Links()
		if err != nil {
			return fmt.Errorf("list links of %s: %w", name, err)
		}
		for _, link := range links {
			if link.Type() != "veth" {
				continue
			}
			// The kernel may have taken it with its other end.
			if err := netlink.LinkDel(link); err != nil && !isNoDevice(err) {
				return fmt.Errorf("delete link %s of %s: %w", link.Attrs().Name, name, err)
			}
		}
		return nil
	})
}

// removeFiles removes the state, last of all, and the directories when no lab
// is left.
func removeFiles(prefix string) error {
	for _, f := range files(prefix) {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", f, err)
		}
	}
	for dir := stateDir; dir != "/run"; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			break // not empty
		}
	}
	return nil
}

func isNoDevice(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.Is(err, unix.ENODEV) || errors.As(err, &missing)
}

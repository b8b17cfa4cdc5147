package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/kernel"
)

// pins are a directory of a bpf file system, with what outlives the agent: a link for each hook that a stage keeps
// (Stage.Keeps). An agent that starts takes the links over, and puts its own programs in place of those that run.
type pins struct {
	dir     string           // empty: there is none
	lock    *pinLock         // of this agent
	synced  bool             // interfaces of the start are attached
	claimed bool             // links that no hook has taken over are gone
	leaving bool             // what is kept stays when hooks are closed
	names   map[*hook]string // of links that are pinned
}

// pinLock is held by the agent whose pins a directory has.
type pinLock struct{ *os.File }

// errPinned is that another agent runs.
var errPinned = errors.New("another agent keeps its programs there: stop it, or give each agent a directory of its own (gate.pin_dir)")

// openPinLock makes the directory, if it must, and locks it.
func openPinLock(dir string, create bool) (*pinLock, error) {
	if create {
		if err := makePinDir(dir); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errPinned
		}
		return nil, err
	}
	return &pinLock{f}, nil
}

func makePinDir(dir string) error {
	within := dir
	if _, err := os.Stat(dir); err != nil {
		within = filepath.Dir(dir)
	}
	var fsInfo unix.Statfs_t
	if err := unix.Statfs(within, &fsInfo); err != nil {
		return fmt.Errorf("%s: %w", within, err)
	}
	if uint32(fsInfo.Type) != unix.BPF_FS_MAGIC { // a signed word of 32 bits on some processors
		return fmt.Errorf("%w: %s is in no bpf file system: mount -t bpf bpf /sys/fs/bpf, or name a directory of one that is mounted elsewhere", kernel.ErrMissing, within)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: the agent's user must be able to write to %s, which must not be mounted read-only, or own %s", err, within, dir)
	}
	return nil
}

// openPins opens the directory that stages name. Where none keeps anything, it is only looked through for what an agent
// before has left.
func (d *Datapath) openPins() error {
	d.pins = pins{names: map[*hook]string{}}
	create := false
	for _, s := range d.stages {
		if s.Pins != "" {
			d.pins.dir = s.Pins
			create = create || s.Keeps != nil
		}
	}
	if d.pins.dir == "" {
		return nil
	}
	lock, err := openPinLock(d.pins.dir, create)
	if err != nil && create {
		return fmt.Errorf("keeping programs in %s: %w", d.pins.dir, err)
	}
	if err != nil { // nothing is there, or it is not ours
		d.pins.dir = ""
		return nil
	}
	d.pins.lock = lock
	return nil
}

// Leave has programs that stages keep stay on interfaces, from now on, when they are detached.
func (d *Datapath) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pins.leaving = true
}

// Synced follows the attaching of all interfaces of the start: what only loading needs is freed.
func (d *Datapath) Synced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pins.synced, d.parsed = true, nil
}

func (p *pins) close() {
	if p.lock != nil {
		_ = p.lock.Close() // it is only read
	}
	p.dir, p.lock = "", nil
}

// pinName is that of a hook of an interface in the namespace of the caller.
func pinName(h Hook) (string, error) {
	var s syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return "", fmt.Errorf("number of the network namespace: %w", err)
	}
	return fmt.Sprintf("link-%s-%d-%d", h.Type, h.Target.IfIndex, s.Ino), nil
}

// adopt takes over what an agent before this one has left on a hook; nil: nothing. Stages know of the hook before its
// packets meet this agent's program: none is decided by no rules.
func (d *Datapath) adopt(p *Program, at Hook) (*hook, error) {
	if d.pins.dir == "" {
		return nil, nil
	}
	name, err := pinName(at)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(d.pins.dir, name)
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	replaced := func(err error) {
		d.log.Warn("what an agent before has left is replaced, not taken over: meanwhile packets meet no rules", "interface", at.Target.String(), "hook", at.Type.String(), "error", err)
	}
	if err != nil { // no link: nothing runs because of it
		replaced(err)
		return nil, os.Remove(path)
	}
	h, err := d.takeOver(p, at, l)
	if err != nil {
		replaced(err)
		return nil, errors.Join(l.Unpin(), l.Close())
	}
	d.pins.names[h] = name
	d.keepOrEnd(h)
	d.log.Info("took over the program of an agent before", "interface", at.Target.String(), "hook", at.Type.String())
	return h, nil
}

func (d *Datapath) takeOver(p *Program, at Hook, l link.Link) (*hook, error) {
	h, err := adopted(l, at)
	if err != nil {
		return nil, err
	}
	if h.mode == ModeXDPGeneric && p.Optional && !d.anywhere(p, at) {
		return nil, errors.New("it runs behind the driver, which is not wanted any more")
	}
	loaded, bound, err := d.loadFor(p, at.Target)
	if err != nil {
		return nil, err
	}
	h.Hook, h.netns, h.program, h.bound = at, at.Target.Netns, loaded, bound
	h = h.inside(at.Target.Do)
	h.noteEarly(h.mode)
	hooks := append(d.hooks[at.Target.Iface], h)
	d.hooks[at.Target.Iface] = hooks
	for _, one := range hooks {
		err = errors.Join(err, d.notify(one, func(s *Stage) bool { return s.uses(one.Hook) }))
	}
	if err == nil {
		err = h.update(loaded)
	}
	if err != nil {
		h.noteEarly("")
		d.hooks[at.Target.Iface] = hooks[:len(hooks)-1]
		return nil, errors.Join(err, d.notify(h, func(*Stage) bool { return false }))
	}
	return h, nil
}

// adopted is the hook of a link that was pinned, if it is still on the interface.
func adopted(l link.Link, at Hook) (*hook, error) {
	info, err := l.Info()
	if err != nil {
		return nil, err
	}
	index := ifindexOf(info)
	if index != at.Target.IfIndex {
		return nil, fmt.Errorf("its interface has the number %d", index)
	}
	if at.Type != XDP {
		return tcxHook(l, int(index), at.Type.direction(), info.ID), nil
	}
	on, err := netlink.LinkByIndex(int(index))
	if err != nil {
		return nil, err
	}
	mode := ModeXDP
	if x := on.Attrs().Xdp; x != nil && x.AttachMode == nl.XDP_ATTACHED_SKB {
		mode = ModeXDPGeneric
	}
	return linkHook(l, mode), nil
}

// ifindexOf is the interface of a link; 0: it is gone.
func ifindexOf(info *link.Info) uint32 {
	if x := info.XDP(); x != nil {
		return x.Ifindex
	}
	if x := info.TCX(); x != nil {
		return x.Ifindex
	}
	return 0
}

// keepOrEnd pins the link of a hook where a stage keeps it, and removes the pin elsewhere. The caller is in the
// namespace of the interface.
func (d *Datapath) keepOrEnd(h *hook) {
	h.kept = d.pins.dir != "" && slices.ContainsFunc(d.stages, func(s *Stage) bool { return s.Keeps != nil && s.uses(h.Hook) && s.Keeps(h.Hook) })
	name, has := d.pins.names[h]
	var err error
	switch {
	case h.kept && !has:
		if name, err = d.keep(h); err == nil {
			d.pins.names[h] = name
		}
	case has && !h.kept:
		delete(d.pins.names, h)
		err = os.Remove(filepath.Join(d.pins.dir, name))
	}
	if err != nil {
		h.kept = false
		d.reportOnce(h.Hook, "the program ends with the agent", explain(err))
	}
}

func (d *Datapath) keep(h *hook) (name string, err error) {
	if h.keep == nil {
		return "", fmt.Errorf("%w: to keep it takes a kernel with TCX", kernel.ErrMissing)
	}
	if name, err = pinName(h.Hook); err != nil {
		return "", err
	}
	return name, h.keep(filepath.Join(d.pins.dir, name))
}

// leaveKept closes what stays on an interface, and returns the other hooks.
func (d *Datapath) leaveKept(hooks []*hook) ([]*hook, error) {
	var errs []error
	rest := slices.DeleteFunc(slices.Clone(hooks), func(h *hook) bool {
		if h.kept {
			errs = append(errs, h.leave())
			delete(d.pins.names, h)
		}
		return h.kept
	})
	return rest, errors.Join(errs...)
}

// claim removes links of agents before that no hook has taken over, once interfaces of the start are attached. An agent
// that leaves its own behind has no names of them any more: the next one claims.
func (d *Datapath) claim() error {
	if !d.pins.synced || d.pins.claimed || d.pins.leaving || d.pins.dir == "" {
		return nil
	}
	d.pins.claimed = true
	var own []string
	for _, name := range d.pins.names {
		own = append(own, name)
	}
	removed, err := removePins(d.pins.dir, func(name string) bool { return strings.HasPrefix(name, "link-") && !slices.Contains(own, name) })
	for _, what := range removed {
		d.log.Info("removed what an agent before has left", "what", what)
	}
	return err
}

// removePins removes pins, and returns what they were.
func removePins(dir string, which func(name string) bool) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	var errs []error
	for _, e := range entries {
		if !which(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		what := pinText(path)
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, what)
	}
	return removed, errors.Join(append(errs, err)...)
}

// pinText says what a pin is.
func pinText(path string) string {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return path
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return path
	}
	hook := strings.Split(filepath.Base(path), "-")[1]
	if index := ifindexOf(info); index != 0 {
		return fmt.Sprintf("program at %s of interface %s", hook, nameOf(int(index)))
	}
	return fmt.Sprintf("program at %s of an interface that is gone", hook)
}

func nameOf(index int) string {
	if l, err := netlink.LinkByIndex(index); err == nil {
		return l.Attrs().Name
	}
	return fmt.Sprintf("%d of another network namespace", index)
}

// Pinned lists the programs that an agent has left in a directory. It fails with ErrPinsInUse where the agent runs.
func Pinned(dir string) (list []string, err error) {
	err = withPins(dir, func() error {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "link-") {
				list = append(list, pinText(filepath.Join(dir, e.Name())))
			}
		}
		return err
	})
	return list, err
}

// Attached reports whether a program that an agent has left in a directory is still on an interface.
func Attached(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		l, err := link.LoadPinnedLink(filepath.Join(dir, e.Name()), nil)
		if err != nil {
			return false
		}
		defer l.Close()
		info, err := l.Info()
		return err == nil && ifindexOf(info) != 0
	})
}

// ErrPinsInUse is that the agent runs whose pins these are.
var ErrPinsInUse = errPinned

// RemovePins takes programs off that an agent has left in a directory, and removes it.
func RemovePins(dir string) (removed []string, err error) {
	err = withPins(dir, func() (err error) {
		removed, err = removePins(dir, func(name string) bool { return true })
		return errors.Join(err, os.Remove(dir))
	})
	return slices.DeleteFunc(removed, func(what string) bool { return strings.HasPrefix(what, dir) }), err
}

// withPins locks a directory; without one there is nothing to do.
func withPins(dir string, f func() error) error {
	lock, err := openPinLock(dir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer lock.Close()
	return f()
}

// Package headroom makes room for marks in packets, and puts back what it changed.
// In come interfaces that mark; out go an MTU that is 16 octets smaller for what
// the host sends over IPv6, and, where every packet needs a number of its own,
// bursts of one segment. What was there before is written to a file first, so
// that an agent that was killed leaves nothing behind that the next one does not
// put back. The agent calls it before it marks, at every scan, and at its end.
package headroom

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/wire/pdm"
)

// Mode is where the octets of a mark are reserved.
type Mode string

// The modes.
const (
	Interface Mode = "interface" // the interface's IPv6 MTU
	Route     Mode = "route"     // the MTU of the routes that policies name
	None      Mode = "none"      // nowhere: packets that would not fit go unmarked
)

// minMTU is what every IPv6 link must carry (RFC 8200 section 5).
const minMTU = 1280

// Config says what is reserved.
type Config struct {
	Mode     Mode
	Packets  bool           // bursts have one segment: each packet on the wire gets a mark of its own
	Prefixes []netip.Prefix // of policies; Route changes the routes to these
	File     string         // where changes are written down
}

// DefaultFile is in memory that a restart of the host clears, as it clears what
// was changed.
const DefaultFile = "/run/waymark/pdm-room.json"

// Default reserves at interfaces.
func Default() Config { return Config{Mode: Interface, File: DefaultFile} }

// Errors that callers tell apart.
var (
	// ErrTooSmall marks interfaces and routes whose MTU has no octet to spare.
	ErrTooSmall = errors.New("MTU too small")
	// ErrBusy says that another agent that runs has reserved room.
	ErrBusy = errors.New("room is reserved by another agent")
)

// Link is an interface that marks.
type Link struct {
	Netns string `json:"netns,omitempty"` // name of its network namespace; empty: the agent's own
	Name  string `json:"name"`
	Index int    `json:"index"`
}

func (l Link) String() string {
	if l.Netns == "" {
		return l.Name
	}
	return l.Netns + "/" + l.Name
}

// Deps are what a Keeper works with.
type Deps struct {
	// In runs a function in a network namespace, by name.
	In  func(netns string, f func() error) error
	Log *slog.Logger
}

// Keeper makes room, keeps it, and puts back what was there before. Its methods
// may be called from any goroutine.
type Keeper struct {
	cfg  Config
	deps Deps

	mu      sync.Mutex
	journal *journal
}

// New returns a Keeper that has changed nothing.
func New(cfg Config, deps Deps) *Keeper { return &Keeper{cfg: cfg, deps: deps} }

// Recover puts back what an agent changed that is gone without having done so.
// It fails with ErrBusy when that agent still runs.
func (k *Keeper) Recover() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.open()
	if errors.Is(err, ErrBusy) && k.cfg.Mode == None && !k.cfg.Packets {
		return nil // this one will change nothing
	}
	return err
}

// open reads the file, takes it over, and restores what is in it.
func (k *Keeper) open() error {
	if k.journal != nil {
		return nil
	}
	j, err := openJournal(k.cfg.File)
	if err != nil {
		return err
	}
	left := len(j.Changes)
	if err := k.restore(j, nil); err != nil {
		return err
	}
	if left > 0 {
		k.deps.Log.Warn("put back what a killed agent had changed to make room for marks", "changes", left)
	}
	k.journal = j
	return nil
}

// Check says why room cannot be made on an interface, before anything is
// changed. An error of too small an MTU wraps ErrTooSmall.
func (k *Keeper) Check(l Link) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.lacking(l)
	return err
}

// Reserve makes room on an interface, all of it or none.
func (k *Keeper) Reserve(l Link) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	changes, err := k.lacking(l)
	if err != nil || len(changes) == 0 {
		return err
	}
	if err := k.open(); err != nil {
		return err
	}
	for _, c := range changes {
		if err := k.make(c); err != nil {
			return errors.Join(err, k.restore(k.journal, func(c change) bool { return c.Link == l }))
		}
	}
	return nil
}

// lacking lists the changes that an interface needs and does not have yet, or
// says why one cannot be.
func (k *Keeper) lacking(l Link) ([]change, error) {
	changes, err := k.plan(l)
	if err != nil {
		return nil, err
	}
	if k.journal != nil {
		changes = slices.DeleteFunc(changes, k.journal.has)
	}
	for _, c := range changes {
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// make writes a change down and then makes it.
func (k *Keeper) make(c change) error {
	k.journal.Changes = append(k.journal.Changes, c)
	if err := k.journal.save(); err != nil {
		k.journal.drop(c)
		return err
	}
	if err := k.deps.In(c.Netns, func() error { return c.set(c.To) }); err != nil {
		k.journal.drop(c)
		return errors.Join(fmt.Errorf("make room on %s: %w", c.Link, err), k.journal.save())
	}
	return nil
}

// plan lists the changes that an interface needs, as it is now.
func (k *Keeper) plan(l Link) (changes []change, err error) {
	err = k.deps.In(l.Netns, func() error {
		switch k.cfg.Mode {
		case Interface:
			c, err := planInterface(l)
			if err != nil {
				return err
			}
			changes = append(changes, c...)
		case Route:
			c, err := planRoutes(l, k.cfg.Prefixes)
			if err != nil {
				return err
			}
			changes = append(changes, c...)
		}
		if k.cfg.Packets {
			c, err := planSegments(l)
			if err != nil {
				return err
			}
			changes = append(changes, c...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("make room on %s: %w", l, err)
	}
	return changes, nil
}

// Keep makes room again where something else took it: a new MTU of the link, a
// router's advertisement.
func (k *Keeper) Keep() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.journal == nil {
		return nil
	}
	var errs []error
	for _, c := range slices.Clone(k.journal.Changes) {
		errs = append(errs, k.keep(c))
	}
	return errors.Join(errs...)
}

func (k *Keeper) keep(c change) error {
	var now int
	err := k.deps.In(c.Netns, func() (err error) {
		now, err = c.get()
		return err
	})
	switch {
	case isGone(err):
		k.journal.drop(c)
		return k.journal.save()
	case err != nil:
		return fmt.Errorf("look after the room on %s: %w", c.Link, err)
	case now == c.To:
		return nil
	}
	k.journal.drop(c)
	changes, err := k.lacking(c.Link)
	if err != nil {
		k.deps.Log.Warn("no room for marks any more: large packets go unmarked", "iface", c.Link.String(), "error", err)
		return k.journal.save()
	}
	if i := slices.IndexFunc(changes, c.is); i >= 0 {
		k.deps.Log.Info("made room for marks again", "iface", c.Link.String(), "what", c.Kind, "was", now, "is", changes[i].To)
		return k.make(changes[i])
	}
	return k.journal.save()
}

// Release puts back what was changed on an interface.
func (k *Keeper) Release(l Link) error {
	return k.release(func(c change) bool { return c.Link == l })
}

// Restore puts back everything.
func (k *Keeper) Restore() error {
	return k.release(nil)
}

func (k *Keeper) release(which func(change) bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.journal == nil {
		return nil
	}
	return k.restore(k.journal, which)
}

// restore undoes changes, the latest first, and forgets those that are undone.
func (k *Keeper) restore(j *journal, which func(change) bool) error {
	var errs []error
	for _, c := range slices.Backward(slices.Clone(j.Changes)) {
		if which != nil && !which(c) {
			continue
		}
		if err := k.deps.In(c.Netns, c.undo); err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("put back the %s of %s (%d): %w", c.Kind, c.Link, c.From, err))
			continue
		}
		j.drop(c)
	}
	return errors.Join(append(errs, j.save())...)
}

// isGone tells whether an interface, a route or a namespace is not there any more.
func isGone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, errGone)
}

var errGone = errors.New("is gone")

// shortened is an MTU that leaves room for a mark.
func shortened(mtu int) int { return mtu - pdm.HeaderSize }

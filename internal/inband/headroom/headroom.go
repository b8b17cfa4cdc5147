// Package headroom reserves MTU headroom for what stages add to packets, and
// restores what it changed. Input: interfaces, with what each stage needs there.
// Output: an IPv6 MTU that is smaller by the sum of their bytes for what the host
// sends and, where a stage treats each packet by itself, bursts of one segment.
// The agent calls it before it attaches, at every scan and at its end.
//
// Each change is written to a journal first, one per host, which all agents
// share: whichever agent starts after one that was killed restores the settings.
package headroom

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/waymark-net/waymark/internal/order"
)

// Mode is where bytes are reserved.
type Mode string

// The modes.
const (
	Interface Mode = "interface" // the interface's IPv6 MTU
	Route     Mode = "route"     // the MTU of the routes to certain destinations
	None      Mode = "none"      // nowhere: packets that would not fit pass unmarked
)

// minMTU is what every IPv6 link must carry (RFC 8200 section 5).
const minMTU = 1280

// Need is what one stage takes on an interface.
type Need struct {
	Key      string // of the configuration that sets Mode, for errors
	Mode     Mode
	Bytes    int            // by which packets may grow
	Prefixes []netip.Prefix // Route changes the routes to these
	Packets  bool           // bursts have one segment: each packet on the wire is treated by itself
	Without  string         // what happens where there is no headroom, for messages
}

// Config says where changes are written down.
type Config struct {
	File string // the journal
}

// DefaultFile is in memory that a restart of the host clears, as it clears what
// was changed.
const DefaultFile = "/run/waymark/headroom.json"

// Default is the journal that all agents of a host share.
func Default() Config { return Config{File: DefaultFile} }

// ErrTooSmall marks interfaces and routes whose MTU has no byte to spare.
var ErrTooSmall = errors.New("MTU too small")

// Link is an interface.
type Link struct {
	Netns string // name of its network namespace; empty: the agent's own
	Name  string
	Index int
}

func (l Link) String() string {
	if l.Netns == "" {
		return l.Name
	}
	return l.Netns + "/" + l.Name
}

// key identifies an interface, which may be renamed.
type key struct {
	netns string
	index int
}

// Reduction is one setting that is lower while a stage needs it.
type Reduction struct {
	Link
	Setting string // SettingMTU, SettingSegments or SettingRoute
	Route   string // its prefix
	From    int    // of a route, 0: it had none of its own
	To      int
}

// Problem is why there is no headroom on an interface.
type Problem struct {
	Link
	Without string // what happens there
	Err     error
}

// Deps are what a Keeper works with.
type Deps struct {
	// In runs a function in a network namespace, by name.
	In  func(netns string, f func() error) error
	Log *slog.Logger
}

// Keeper reserves headroom, keeps it, and restores what was there before. Its
// methods may be called from any goroutine.
type Keeper struct {
	cfg  Config
	deps Deps

	mu      sync.Mutex
	journal *journal // nil: nothing had to be changed yet
	links   map[key]*reserved
}

// reserved is an interface with what was changed on it.
type reserved struct {
	Link
	needs   []Need
	changes []change
	err     error // what could not be changed
}

// New returns a Keeper that has changed nothing.
func New(cfg Config, deps Deps) *Keeper {
	return &Keeper{cfg: cfg, deps: deps, links: map[key]*reserved{}}
}

// Recover restores what agents changed that ended without doing so.
func (k *Keeper) Recover() ([]Reduction, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.journal == nil && !exists(k.cfg.File) {
		return nil, nil
	}
	if err := k.open(); err != nil {
		return nil, err
	}
	var restored []Reduction
	var errs []error
	err := k.journal.update(func(t *table) error {
		for _, c := range slices.Backward(slices.Clone(t.Changes)) {
			if c.Owners = k.journal.running(c.Owners); len(c.Owners) > 0 {
				continue
			}
			done, err := k.undo(t, c)
			if errors.Is(err, errNetnsNotFound) {
				continue // where it is visible, another agent finds it
			}
			if errs = append(errs, err); done {
				restored = append(restored, c.reduction())
				k.deps.Log.Warn("restored a setting that an agent had reduced and not restored", c.restored()...)
			}
		}
		return nil
	})
	return restored, errors.Join(append(errs, err)...)
}

// open takes part in the journal.
func (k *Keeper) open() (err error) {
	if k.journal == nil {
		k.journal, err = openJournal(k.cfg.File)
	}
	return err
}

// Reserve makes headroom on an interface for the sum of all needs, as far as
// possible, in place of what was reserved there before; its error says what could
// not be had. Keep tries again.
func (k *Keeper) Reserve(l Link, needs ...Need) error {
	if len(needs) == 0 {
		return k.Release(l)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at := key{l.Netns, l.Index}
	r := k.links[at]
	if r == nil {
		r = &reserved{}
		k.links[at] = r
	}
	r.Link, r.needs = l, needs
	r.err = k.reconcile(r)
	return r.err
}

// Without is what happens where there is no headroom for needs.
func Without(needs []Need) string {
	var all []string
	for _, n := range needs {
		if n.Without != "" {
			all = append(all, n.Without)
		}
	}
	return strings.Join(all, "; ")
}

// Keep reserves again where something else took the headroom: a new MTU of the
// link, a router's advertisement.
func (k *Keeper) Keep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.links {
		before := r.err
		if r.err = k.reconcile(r); r.err != nil && (before == nil || before.Error() != r.err.Error()) {
			k.deps.Log.Warn("no MTU headroom: "+Without(r.needs), "iface", r.String(), "reason", r.err)
		}
	}
}

// reconcile changes what an interface needs and does not have, and forgets what
// is gone.
func (k *Keeper) reconcile(r *reserved) error {
	var errs []error
	err := k.deps.In(r.Netns, func() error {
		wanted, planErr := plan(r.Link, r.needs)
		if isGone(planErr) {
			wanted, planErr = nil, nil
		}
		errs = append(errs, planErr)
		for _, c := range slices.Clone(r.changes) {
			if !slices.ContainsFunc(wanted, c.is) {
				errs = append(errs, k.forget(r, c))
			}
		}
		for _, c := range wanted {
			if i := slices.IndexFunc(r.changes, c.is); i >= 0 && r.changes[i].To == c.now && r.changes[i].need == c.need {
				continue
			}
			errs = append(errs, k.reduce(r, c))
		}
		return nil
	})
	if err != nil && !isGone(err) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// plan lists the settings that matter on an interface, with their present values.
func plan(l Link, needs []Need) (wanted []change, err error) {
	at, err := placeOf(l)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, settings := range []func([]Need) ([]change, error){at.planMTU, at.planRoutes, at.planSegments} {
		more, err := settings(needs)
		if isGone(err) {
			return wanted, err
		}
		wanted, errs = append(wanted, more...), append(errs, err)
	}
	return wanted, errors.Join(errs...)
}

// reduce writes one change down and makes it. It runs in the namespace of the
// interface.
func (k *Keeper) reduce(r *reserved, c change) error {
	r.changes = slices.DeleteFunc(r.changes, c.is)
	if err := c.check(); err != nil && !exists(k.cfg.File) {
		return err
	}
	if err := k.open(); err != nil {
		return err
	}
	return k.journal.update(func(t *table) error {
		found := t.find(c)
		switch {
		case found != nil && found.To == c.now && found.serves(c, k.journal.self):
			found.add(k.journal.self)
			shared := *found
			shared.need = c.need
			r.changes = append(r.changes, shared)
			return nil
		case found != nil && found.To == c.now: // for other needs
			c.resize(found)
			t.drop(*found)
		case found == nil && c.satisfied():
			c.To = c.now
			r.changes = append(r.changes, c)
			return nil
		case found != nil: // something else changed it since
			c.inherit(found)
			t.drop(*found)
		}
		if err := c.check(); err != nil {
			return err
		}
		c.add(k.journal.self)
		t.Changes = append(t.Changes, c)
		if err := k.journal.save(t); err != nil {
			t.drop(c)
			return err
		}
		if err := c.set(c.To); err != nil {
			t.drop(c)
			return fmt.Errorf("reduce the %s of %s: %w", c.Setting, r.Link, err)
		}
		r.changes = append(r.changes, c)
		k.deps.Log.Info("reduced a setting to make MTU headroom", c.attrs()...)
		return nil
	})
}

// forget gives up a change of something that is gone, or elsewhere.
func (k *Keeper) forget(r *reserved, c change) error {
	r.changes = slices.DeleteFunc(r.changes, c.is)
	return k.journal.update(func(t *table) error { return k.leave(t, c) })
}

// Release restores what was changed on an interface.
func (k *Keeper) Release(l Link) error {
	return k.release(func(r *reserved) bool { return r.Netns == l.Netns && r.Index == l.Index })
}

// Restore restores everything that this agent changed, and leaves the journal.
func (k *Keeper) Restore() error {
	err := k.release(func(*reserved) bool { return true })
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.journal != nil {
		k.journal.close()
		k.journal = nil
	}
	return err
}

func (k *Keeper) release(which func(*reserved) bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for at, r := range k.links {
		if !which(r) {
			continue
		}
		delete(k.links, at)
		if len(r.changes) == 0 {
			continue
		}
		errs = append(errs, k.journal.update(func(t *table) error {
			for _, c := range slices.Backward(r.changes) {
				errs = append(errs, k.leave(t, c))
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// leave undoes a change unless another agent that runs needs it.
func (k *Keeper) leave(t *table, c change) error {
	found := t.find(c)
	if found == nil {
		return nil
	}
	found.remove(k.journal.self)
	if found.Owners = k.journal.running(found.Owners); len(found.Owners) > 0 {
		return nil
	}
	done, err := k.undo(t, *found)
	if errors.Is(err, errNetnsNotFound) {
		t.drop(c)
		return nil
	}
	if done {
		k.deps.Log.Info("restored a setting that was reduced to make MTU headroom", c.restored()...)
	}
	return err
}

// undo restores what was there, unless something else has changed it since, and
// drops the change when there is nothing left to do.
func (k *Keeper) undo(t *table, c change) (done bool, err error) {
	err = c.Netns.in(k.deps.In, func() (err error) {
		done, err = c.undo()
		return err
	})
	if errors.Is(err, errNetnsNotFound) || isGone(err) {
		moved, unseen, movedErr := c.moved()
		switch {
		case movedErr != nil || moved:
			done, err = moved, movedErr
		case unseen > 0:
			k.deps.Log.Warn("an interface is gone; if it was moved to a network namespace that this agent may not enter, a setting is still reduced there: set it with 'ip link set'",
				append(c.attrs(), "namespaces", unseen)...)
		}
	}
	switch {
	case errors.Is(err, errNetnsNotFound):
		return false, err
	case err != nil && !isGone(err):
		return false, fmt.Errorf("restore the %s of %s to %d: %w", c.Setting, c.link(), c.From, err)
	}
	t.drop(c)
	return done, nil
}

// Status lists what is reduced, and where headroom could not be had.
func (k *Keeper) Status() (reduced []Reduction, problems []Problem) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.links {
		for _, c := range r.changes {
			if len(c.Owners) == 0 {
				continue // it was low enough
			}
			one := c.reduction()
			one.Link = r.Link // its name of today
			reduced = append(reduced, one)
		}
		if r.err != nil {
			problems = append(problems, Problem{Link: r.Link, Without: Without(r.needs), Err: r.err})
		}
	}
	order.By(reduced, compareReductions)
	order.By(problems, func(a, b Problem) int { return compareLinks(a.Link, b.Link) })
	return reduced, problems
}

// Stale are reductions in the journal whose agents no longer run.
func Stale(file string) ([]Reduction, error) {
	if !exists(file) {
		return nil, nil
	}
	j, err := readJournal(file, 0)
	if err != nil {
		return nil, err
	}
	defer j.close()
	t, err := j.load()
	if err != nil {
		return nil, err
	}
	var left []Reduction
	for _, c := range t.Changes {
		if len(j.running(c.Owners)) == 0 {
			left = append(left, c.reduction())
		}
	}
	order.By(left, compareReductions)
	return left, nil
}

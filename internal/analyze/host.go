package analyze

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
	"github.com/waymark-net/waymark/internal/topology/joined"
	"github.com/waymark-net/waymark/internal/verdict"
)

// host is one whose intervals are kept.
type host struct {
	name string

	keeping  sync.Mutex // of those who write
	disk     *disk.Store
	tended   time.Time
	examiner *verdict.Examiner

	mu      sync.Mutex // of what follows
	bucket  bucket
	state   state.Host
	boots   []run // latest last
	device  bool  // it has no agent
	agent   bool  // it has one, or had one: there are records of it
	clock   clock
	until   time.Time     // latest end of an interval, of those before the start, too
	gaps    []hops.Window // between intervals, latest last
	starts  []hops.Window // first intervals of runs
	said    *joined.Host  // nil: it did not send its topology
	saidSum uint32        // of what it sent
	problem map[string]string
}

// run is one of an agent.
type run struct {
	boot  uint64
	first time.Time // begin of its first interval
}

// bucket bounds bytes per second.
type bucket struct {
	left float64
	at   time.Time
}

// take takes n bytes, of which more may be taken at once than a second brings; wait is how long there are too few.
func (b *bucket) take(n, rate float64, now time.Time) (wait time.Duration) {
	most := max(4*rate, frame.MostRequest)
	if b.at.IsZero() {
		b.left = most
	} else if age := now.Sub(b.at).Seconds(); age > 0 {
		b.left = min(most, b.left+age*rate)
	}
	b.at = now
	if b.left < min(n, most) {
		return time.Duration((min(n, most) - b.left) / rate * float64(time.Second))
	}
	b.left -= n
	return 0
}

func (a *Analyzer) openHost(name string) (*host, error) {
	dir := filepath.Join(a.cfg.Path, "hosts", name)
	d, err := disk.Open(disk.Config{Path: dir, Size: a.cfg.Size, Time: a.cfg.Time},
		disk.Deps{Origin: flow.Origin{Host: name, Sampling: 1}, Log: a.log.With("host", name), Clock: a.clock})
	if err != nil {
		return nil, fmt.Errorf("records of %s in %s: %w", name, dir, err)
	}
	h := &host{name: name, disk: d, state: state.Host{Name: name}, problem: map[string]string{}}
	_, err = os.Stat(filepath.Join(dir, deviceMark))
	h.device = err == nil
	h.agent = !h.device && d.Status().Records > 0
	h.recallGaps(d.Heads())
	h.examiner = a.newExaminer(h)
	a.recall(h)
	return h, nil
}

// openHosts opens those that are known.
func (a *Analyzer) openHosts() error {
	if err := os.MkdirAll(filepath.Join(a.cfg.Path, "hosts"), 0o750); err != nil {
		return fmt.Errorf("make the directory of the records: %w; set analyze.path to one that the analyzer may write", err)
	}
	entries, err := os.ReadDir(filepath.Join(a.cfg.Path, "hosts"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || settings.CheckName(e.Name()) != nil {
			continue
		}
		h, err := a.openHost(e.Name())
		if err != nil {
			return err
		}
		a.hosts = append(a.hosts, h)
	}
	return nil
}

// host is the one of a certificate; the first request of a new one makes it.
func (a *Analyzer) host(name string) (*host, *refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, known := slices.BinarySearchFunc(a.hosts, name, func(h *host, name string) int { return cmpText(h.name, name) })
	if known {
		return a.hosts[i], nil
	}
	if len(a.hosts) >= a.cfg.Hosts {
		return nil, refuse(refusedHosts, 503, fmt.Sprintf("there are %d hosts already", len(a.hosts)), "set analyze.hosts to more")
	}
	h, err := a.openHost(name)
	if err != nil {
		return nil, refuse("not_kept", 507, err.Error(), remedyOf(err))
	}
	a.log.Info("a host sends for the first time", "host", name)
	a.hosts = slices.Insert(slices.Clone(a.hosts), i, h)
	return h, nil
}

func cmpText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (a *Analyzer) all() []*host {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hosts
}

// agents are hosts with an agent. Devices report when a flow ends, or later: their counts are of other times.
func (a *Analyzer) agents() (list []*host) {
	for _, h := range a.all() {
		if !h.isDevice() {
			list = append(list, h)
		}
	}
	return list
}

// remedyOf is what can be done about an error of the disk.
func remedyOf(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "make space below analyze.path, or set analyze.size to less; agents keep what is not taken"
	case errors.Is(err, disk.ErrLocked):
		return "stop the other analyzer"
	}
	return "see the log of the analyzer; agents keep what is not taken"
}

// tend seals, ages and removes files of a host that are due; h.keeping is held.
func (h *host) tend(now time.Time) {
	if age := now.Sub(h.tended); age >= 0 && age < time.Minute {
		return
	}
	h.tended = now
	h.disk.Work()
}

// farClock is how far an agent's clock may be off before it is a problem.
const farClock = 5 * time.Second

// met notes a request.
func (h *host) met(s *sender, leaf *x509.Certificate, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.Version, h.state.Address, h.state.Seen, h.state.Expires = s.version, s.address, now, leaf.NotAfter
	h.state.Lost = s.lost
	h.state.Serial = fmt.Sprintf("%x", leaf.SerialNumber)
	h.state.ClockOffset, h.state.Sampling = s.clock.Sub(now), s.sampling
	h.clock.note(clockSeen{h.state.ClockOffset, s.trip})
	h.clockProblem()
	if h.state.Expires.Sub(now) < 30*24*time.Hour {
		h.is("expires", "its certificate ends at "+h.state.Expires.Format(time.DateOnly)+": have it join again")
	} else {
		h.isNot("expires")
	}
}

// clockProblem notes a clock that is off; h.mu is held.
func (h *host) clockProblem() {
	if off := h.state.ClockOffset; off > farClock || off < -farClock {
		h.is("clock", fmt.Sprintf("its clock is %v off: its records stand at other times than those of other hosts: set it (chronyc makestep, timedatectl set-ntp true)", off.Round(time.Second)))
	} else {
		h.isNot("clock")
	}
}

// is notes a problem, which isNot ends; h.mu is held.
func (h *host) is(kind, text string) { h.problem[kind] = text }
func (h *host) isNot(kind string)    { delete(h.problem, kind) }

// note notes an interval that was kept; twin reports whether an earlier run of the agent goes on at the same time.
func (h *host) note(boot uint64, head store.Head, bytes int) (twin bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.boots, func(r run) bool { return r.boot == boot })
	first := i < 0
	if first {
		h.boots = append(h.boots, run{boot: boot, first: head.From})
		if i = len(h.boots) - 1; i > 16 {
			h.boots = slices.Delete(h.boots, 0, 1)
			i--
		}
	}
	r := &h.boots[i]
	h.state.Intervals++
	h.state.Records += uint64(head.Rows)
	h.state.Bytes += uint64(bytes)
	h.noteGap(&head, first)
	if head.To.After(h.state.Last) {
		h.state.Last = head.To
	}
	// What an agent queued before it ended is from before the next one began.
	if latest := &h.boots[len(h.boots)-1]; latest != r && !latest.first.IsZero() && head.From.After(latest.first) {
		h.is("twin", "two agents send as "+h.name+": their packets count twice where both see them; have one of the hosts join under another name")
		return true
	}
	return false
}

// missed notes intervals that an agent lost before they reached the analyzer.
func (h *host) missed(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.Missing += n
}

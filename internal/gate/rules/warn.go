package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/order"
)

// Warning is something that is correct and likely a mistake.
type Warning struct {
	Pos  Position
	What string
}

func (w Warning) String() string { return w.Pos.String() + ": warning: " + w.What }

// Warnings reports rules and members that have ended, rules that never match, those that an
// earlier rule keeps from all of their packets, allow lists behind ban lists, and sets that no
// rule names. Only pairs of rules are compared: a rule that several others cover together is
// not found.
func (rs *Ruleset) Warnings(now time.Time) (list []Warning) {
	c := newCoverer(rs)
	for j, r := range rs.Rules {
		if ended(r.Until, now) {
			list = append(list, Warning{r.Pos, fmt.Sprintf("this rule has ended: %s is over", formatTime(r.Until))})
			continue
		}
		if never := c.never(j); never != "" {
			list = append(list, Warning{r.Pos, "this rule never matches: " + never})
			continue
		}
		if w := c.conflict(j); w != "" {
			list = append(list, Warning{r.Pos, w})
		}
		if l := r.Limit; l != nil && l.Bytes && l.Burst < 1500 {
			list = append(list, Warning{r.Pos, fmt.Sprintf("packets longer than the burst of %d bytes are always dropped: write burst 64KB", l.Burst)})
		}
	}
	used := rs.used()
	for _, s := range rs.Sets {
		if i := slices.IndexFunc(s.Prefixes, func(m Member) bool { return ended(m.Until, now) }); i >= 0 {
			m := s.Prefixes[i]
			list = append(list, Warning{s.Pos, fmt.Sprintf("a member of the set %s has ended: %s until %s", s.Name, prefixText(m.Prefix), formatTime(m.Until))})
		}
		if !used[s.Name] {
			list = append(list, Warning{s.Pos, fmt.Sprintf("no rule names the set %s", s.Name)})
		}
	}
	order.By(list, func(a, b Warning) int { return comparePositions(a.Pos, b.Pos) })
	return list
}

// ended reports whether an end is over; zero is without end.
func ended(until, now time.Time) bool { return !until.IsZero() && !now.Before(until) }

// used are the sets that rules name.
func (rs *Ruleset) used() map[string]bool {
	used := map[string]bool{}
	for _, r := range rs.Rules {
		m := &r.Match
		for _, name := range slices.Concat(m.Src.Sets, m.Dst.Sets, m.Sport.Sets, m.Dport.Sets) {
			used[name] = true
		}
	}
	return used
}

// conflict finds the first earlier rule that has an effect on rule j which was hardly meant.
func (c *coverer) conflict(j int) string {
	later := c.rules[j]
	outline := c.outlines[j]
	for i := range j {
		if !c.outlines[i].mayConflict(&outline) {
			continue
		}
		earlier := c.rules[i]
		if compareEnds(earlier.rule.Until, later.rule.Until) < 0 {
			continue
		}
		a, b := earlier.rule, later.rule
		switch {
		case c.covers(i, j) && b.decides() && a.Action != b.Action && c.covers(j, i):
			return fmt.Sprintf("this rule contradicts %q in %s, which decides: remove one of them", a.Text, place(a))
		case c.covers(i, j) && a.Action == b.Action:
			return fmt.Sprintf("this rule is redundant: %q in %s does the same with all its packets", a.Text, place(a))
		case c.covers(i, j):
			return fmt.Sprintf("this rule never matches: %q in %s decides about all its packets; move this rule in front of it, or remove it", a.Text, place(a))
		case a.Action == ActionDrop && b.Action == ActionPass && c.bans(i, j):
			if p, ok := overlap(earlier.src.list, later.src.list); ok {
				return fmt.Sprintf("%s is dropped by %q in %s before this rule passes it: move allow lists in front of ban lists", prefixText(p), a.Text, place(a))
			}
		}
	}
	return ""
}

func place(r *Rule) string { return fmt.Sprintf("line %d", r.Pos.Line) }

// bans reports whether rule i would cover rule j if it named the sources of j.
func (c *coverer) bans(i, j int) bool {
	a, b := c.rules[i], c.rules[j]
	if a.src.not || b.src.not || a.src.any || b.src.any {
		return false
	}
	without := *a
	without.src = sources{any: true}
	without.family = b.family
	return without.covers(b)
}

// Package nft translates what nft list ruleset prints to packet rules. Input: the text,
// and the chain that is meant; or a text with sets only, as nft list set prints it. Output: the
// text of a rule file, and every line that has no equivalent. Caller: command line.
package nft

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// Untranslated is a line that has no equivalent.
type Untranslated struct {
	Line int
	Text string // the statement
	Why  string
}

func (u Untranslated) String() string { return fmt.Sprintf("line %d: %s: %s", u.Line, u.Text, u.Why) }

// hooks are where packets come in, which is where the gate sees them.
var hooks = []string{"ingress", "prerouting", "input"}

// Translate translates one chain: that of the name, given as CHAIN or TABLE/CHAIN, or
// without a name the only one at a hook for incoming packets; of a text without chains, all sets. Times count from now. Lines
// without an equivalent are comments in the text. The error says that there is no such chain, or several.
func Translate(text, name string, now time.Time) (string, []Untranslated, error) {
	tables, err := read(text)
	if err != nil {
		return "", nil, err
	}
	if name == "" && hasOnlySets(tables) {
		text, problems := translateSets(tables, now)
		return text, problems, nil
	}
	t, c, err := choose(tables, name)
	if err != nil {
		return "", nil, err
	}
	out := &translation{table: t, now: now, sets: map[string]string{}}
	for _, s := range t.sets {
		out.set(s)
	}
	for _, s := range c.statements {
		out.rule(s)
	}
	if c.policy == "drop" {
		out.lines = append(out.lines, "drop"+out.version(false))
	}
	head := fmt.Sprintf("# Chain %s of table %s %s. The gate sees packets before routing: also those that are forwarded.\n", c.name, t.family, t.name)
	used := slices.DeleteFunc(out.definitions, func(d definition) bool { return !d.used(out.lines) })
	var b strings.Builder
	b.WriteString(head)
	for _, d := range used {
		b.WriteString(d.text + "\n")
	}
	for _, line := range out.lines {
		b.WriteString(line + "\n")
	}
	return b.String(), out.problems, nil
}

// hasOnlySets reports whether there are sets and no chain.
func hasOnlySets(tables []*table) bool {
	sets := 0
	for _, t := range tables {
		if len(t.chains) > 0 {
			return false
		}
		sets += len(t.sets)
	}
	return sets > 0
}

// translateSets translates the sets of all tables. Rules name sets without their tables.
func translateSets(tables []*table, now time.Time) (string, []Untranslated) {
	out := &translation{now: now, sets: map[string]string{}}
	for _, t := range tables {
		for _, s := range t.sets {
			why, known := "", false
			if _, known = out.sets[s.name]; known {
				why = fmt.Sprintf("another table has a set %s", s.name)
			} else {
				before := len(out.definitions)
				out.set(s)
				if why = out.sets[s.name]; why == "" {
					out.lines = append(out.lines, out.definitions[before].text)
				}
			}
			if why != "" {
				out.fail(statement{s.line, []string{"set", s.name}}, why)
			}
		}
	}
	return strings.Join(out.lines, "\n") + "\n", out.problems
}

// choose finds the chain that is meant.
func choose(tables []*table, name string) (*table, *chain, error) {
	type place struct {
		*table
		*chain
	}
	var found []place
	var names []string
	for _, t := range tables {
		for _, c := range t.chains {
			full := t.name + "/" + c.name
			switch {
			case name != "" && name != c.name && name != full:
			case name == "" && !slices.Contains(hooks, c.hook):
			default:
				found = append(found, place{t, c})
			}
			if c.hook != "" {
				names = append(names, full)
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0].table, found[0].chain, nil
	case len(names) == 0:
		return nil, nil, fmt.Errorf("no chain with a hook was found: write the output of nft list ruleset into the file")
	case len(found) == 0:
		return nil, nil, fmt.Errorf("there is no such chain for incoming packets: choose one with --chain: %s", strings.Join(names, ", "))
	}
	names = names[:0]
	for _, p := range found {
		names = append(names, p.table.name+"/"+p.chain.name)
	}
	return nil, nil, fmt.Errorf("several chains are for incoming packets: choose one with --chain: %s", strings.Join(names, ", "))
}

// translation gathers the lines of a rule file.
type translation struct {
	table       *table
	now         time.Time
	sets        map[string]string // why a set has no equivalent; empty: it has one
	definitions []definition
	lines       []string
	problems    []Untranslated
}

// definition is a set; short is one of the same kind with one member.
type definition struct{ name, text, short string }

// used reports whether a rule names the set.
func (d *definition) used(lines []string) bool {
	return slices.ContainsFunc(lines, func(line string) bool {
		return !strings.HasPrefix(line, "#") && slices.ContainsFunc(strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == ',' }),
			func(word string) bool { return word == "@"+d.name })
	})
}

func (t *translation) fail(s statement, why string) {
	u := Untranslated{s.line, s.text(), why}
	t.problems = append(t.problems, u)
	t.lines = append(t.lines, "# not translated: "+u.String())
}

// members are one of each kind of set that rules have, by type and as typeof names it.
var members = map[string]string{
	"ipv4_addr": "192.0.2.1", "ip saddr": "192.0.2.1", "ip daddr": "192.0.2.1",
	"ipv6_addr": "2001:db8::1", "ip6 saddr": "2001:db8::1", "ip6 daddr": "2001:db8::1",
	"inet_service": "80", "tcp dport": "80", "tcp sport": "80", "udp dport": "80", "udp sport": "80", "th dport": "80", "th sport": "80",
}

// set translates the definition of a set.
func (t *translation) set(s *set) {
	t.sets[s.name] = ""
	member := members[s.kind]
	switch {
	case member == "":
		t.sets[s.name] = fmt.Sprintf("the set %s is of type %s, which rules do not have", s.name, s.kind)
	case len(s.elements) == 0:
		t.sets[s.name] = fmt.Sprintf("the set %s has no elements", s.name)
	case !rules.ValidName(s.name):
		t.sets[s.name] = fmt.Sprintf("the name of the set %s can have letters, digits, - and _ only", s.name)
	default:
		text := fmt.Sprintf("set %s { %s }", s.name, strings.Join(s.elements, ", "))
		rs, _, err := rules.Parse("", text, rules.Options{Now: t.now})
		if err != nil {
			t.sets[s.name] = fmt.Sprintf("the set %s has an element without an equivalent: %s", s.name, firstLine(err))
			return
		}
		t.definitions = append(t.definitions, definition{s.name, rs.Sets[0].String(), fmt.Sprintf("set %s { %s }", s.name, member)})
	}
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	_, what, found := strings.Cut(text, ": ")
	if !found {
		return text
	}
	return what
}

// version is the condition that a table of one version makes of all rules.
func (t *translation) version(given bool) string {
	if given || t.table.family != "ip" && t.table.family != "ip6" {
		return ""
	}
	return " " + t.table.family
}

// rule translates one statement of the chain.
func (t *translation) rule(s statement) {
	r := &ruleReader{translation: t, words: s.words, seen: map[string]bool{}}
	for why := ""; len(r.words) > 0; {
		if why = r.next(); why != "" {
			t.fail(s, why)
			return
		}
	}
	if r.action == "limit" {
		t.fail(s, limitWanted)
		return
	}
	if r.action == "" {
		if !r.counter {
			t.fail(s, "it has no verdict")
			return
		}
		r.action = "count"
	}
	text := r.action + t.version(r.seen["ip"] || r.seen["ip6"])
	for _, part := range r.parts {
		text += " " + part
	}
	for _, d := range t.definitions {
		text += "\n" + d.short
	}
	rs, _, err := rules.Parse("", text, rules.Options{Now: t.now})
	if err != nil {
		t.fail(s, firstLine(err))
		return
	}
	t.lines = append(t.lines, rs.Rules[0].Text)
}

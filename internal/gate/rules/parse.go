package rules

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/suggest"
	"github.com/waymark-net/waymark/internal/timespec"
)

// Options are what a text depends on.
type Options struct {
	Now  time.Time                                // from which "for 1h" counts; zero: the current time
	Open func(name string) (io.ReadCloser, error) // block lists; nil: from the file system, relative to the directory of the rule file
}

// Parse reads the text of a file. The error is of type Errors: what is wrong.
// Besides the rules it returns warnings: what is correct and likely a mistake.
func Parse(file, text string, o Options) (*Ruleset, []Warning, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.Open == nil {
		o.Open = RelativeTo(file)
	}
	p := &parser{source: newSource(file, text), options: o, sets: map[string]*Set{}}
	p.tokens, p.errs = p.lex()
	for p.tok().kind != tokenEnd {
		p.line()
	}
	p.check()
	if len(p.errs) > 0 {
		order.By(p.errs, func(a, b *Error) int {
			return comparePositions(a.Pos, b.Pos)
		})
		return nil, nil, p.errs.bounded()
	}
	p.out.identify()
	return &p.out, p.out.Warnings(o.Now), nil
}

// maxText is the largest rule file: some millions of addresses.
const maxText = 64 << 20

// ReadText reads a rule file as a whole, and nothing endless.
func ReadText(name string, in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("%s is larger than %d MiB: is this a rule file?", name, maxText>>20)
	}
	return string(text), err
}

// RelativeTo opens files whose names are relative to the directory of another. A pipe that nobody writes to is empty, where it
// would keep the caller waiting.
func RelativeTo(file string) func(name string) (io.ReadCloser, error) {
	return func(name string) (io.ReadCloser, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(file), name)
		}
		f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a directory", name)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}

// parser is a recursive descent over
//
//	line    = [ set | rule ]
//	set     = "set" name ( "{" [ member { "," member } ] "}" | "from" file )
//	member  = ( address | prefix | address "-" address | port [ "-" port ] ) [ end ]
//	rule    = action { condition | end | "dry-run" }
//	action  = "pass" | "drop" | "count" | ( "sample" | "tap" ) [ "every" n ] | limit | detect | "syncookie" | "no-flow" | "only-flow"
//	limit   = "limit" rate [ "burst" n ] [ "per" ( "rule" | "src" [ "/" bits [ "/" bits ] ] ) ]
//	detect  = "detect" rate [ "per" "src" [ "/" bits [ "/" bits ] ] ]
//	end     = "for" duration | "until" time
//
// The conditions are in the table of condition.go.
type parser struct {
	source
	options Options
	tokens  []token
	at      int
	errs    Errors

	packet bool // a packet is described: names of flags may stand alone

	out  Ruleset
	sets map[string]*Set
	read []*ruleText // of out.Rules, those with errors included
}

// ruleText is a rule and where its parts were written.
type ruleText struct {
	*Rule
	action token
	parts  map[string]token
	uses   []use
	broken bool
}

// use is where a rule names a set.
type use struct {
	name  token
	ports bool // ports are required, not addresses
}

func (p *parser) tok() token { return p.tokens[p.at] }

// next returns the current token and moves behind it, but not behind the end.
func (p *parser) next() token {
	t := p.tok()
	if t.kind != tokenEnd {
		p.at++
	}
	return t
}

// accept moves behind a keyword or sign if it comes next.
func (p *parser) accept(text string) bool {
	if !p.tok().is(text) {
		return false
	}
	p.at++
	return true
}

// line reads one line, or a set of several. Behind an error it goes on with the next.
func (p *parser) line() {
	if p.tok().ends() {
		p.next()
		return
	}
	var err *Error
	switch t := p.next(); {
	case t.is("set"):
		err = p.set(t)
	case actions[strings.ToLower(t.text)] != 0 && t.kind == tokenWord:
		err = p.rule(t, actions[strings.ToLower(t.text)])
	default:
		err = p.unknownLine(t)
	}
	if err == nil && !p.tok().ends() {
		err = p.fail(p.tok(), "unexpected %s: write one rule per line", p.tok().text)
	}
	if err != nil {
		p.errs = append(p.errs, err)
	}
	for !p.tok().ends() {
		p.next()
	}
}

// actions by name.
var actions = map[string]Action{
	"pass": ActionPass, "drop": ActionDrop, "count": ActionCount, "sample": ActionSample, "tap": ActionTap, "limit": ActionLimit, "detect": ActionDetect,
	"syncookie": ActionSynCookie, "no-flow": ActionNoFlow, "only-flow": ActionOnlyFlow,
}

// String is the action's keyword.
func (a Action) String() string {
	for name, action := range actions {
		if a == action {
			return name
		}
	}
	return "none"
}

const actionList = "pass, drop, count, sample, tap, limit, detect, syncookie, no-flow, only-flow or set"

// otherActions are words of other tools for actions.
var otherActions = map[string]string{
	"accept": "pass", "allow": "pass", "permit": "pass", "return": "pass", "deny": "drop", "block": "drop", "counter": "count",
	"reject": "drop", "log": "sample", "ratelimit": "limit", "police": "limit", "synproxy": "syncookie", "define": "set", "let": "set",
}

func (p *parser) unknownLine(t token) *Error {
	word := strings.ToLower(t.text)
	if other := otherActions[word]; other != "" {
		return p.fail(t, "unknown action %s: did you mean %s?", t.text, other)
	}
	known := []string{"set"}
	for name := range actions {
		known = append(known, name)
	}
	slices.Sort(known)
	if near := suggest.Nearest(word, known); near != "" {
		return p.fail(t, "unknown action %s: did you mean %s?", t.text, near)
	}
	if conditions[word] != nil {
		return p.fail(t, "a line begins with what to do: %s", actionList)
	}
	return p.fail(t, "unknown action %s: write %s", t.text, actionList)
}

// rule reads what follows an action.
func (p *parser) rule(t token, action Action) *Error {
	r := &ruleText{Rule: &Rule{Pos: p.position(t), Action: action}, action: t, parts: map[string]token{}}
	p.read = append(p.read, r)
	err := p.head(r)
	for err == nil && !p.tok().ends() {
		err = p.part(r)
	}
	r.broken = err != nil
	return err
}

// head reads what belongs to the action.
func (p *parser) head(r *ruleText) *Error {
	switch r.Action {
	case ActionLimit:
		return p.limit(r)
	case ActionDetect:
		return p.detect(r)
	case ActionSample, ActionTap:
		r.Every = 1
		if p.accept("every") {
			n, err := p.number("a number of packets, such as every 100", 1, 1<<32-1)
			r.Every = uint32(n)
			return err
		}
	}
	return nil
}

// part reads one condition, or an option.
func (p *parser) part(r *ruleText) *Error {
	t := p.tok()
	if p.accept("and") {
		if p.tok().ends() {
			return p.fail(t, `expected a condition after "and"`)
		}
		return nil
	}
	not := p.accept("not")
	t = p.tok()
	c := conditions[strings.ToLower(t.text)]
	if _, isFlags := parseFlags(strings.ToLower(t.text)); p.packet && isFlags && c == nil && !isNumber(t.text) {
		return p.flags(r, part{t, not})
	}
	if t.kind != tokenWord || c == nil {
		return p.unknownPart(t)
	}
	p.next()
	if not && !c.not {
		return p.fail(t, "%s cannot be negated%s", t.text, c.instead)
	}
	return c.read(p, r, part{t, not})
}

// once reports a second condition about the same.
func (p *parser) once(r *ruleText, name string, t token) *Error {
	if _, given := r.parts[name]; given {
		return p.fail(t, "%s is given twice: write a list, such as dst port 80,443, or two rules", name)
	}
	r.parts[name] = t
	return nil
}

// until reads the end of a rule's or member's time, if there is one.
func (p *parser) until() (time.Time, *Error) {
	switch {
	case p.accept("for"):
		t := p.tok()
		d, err := timespec.Duration(t.text)
		if t.kind != tokenWord || err != nil || d <= 0 {
			return time.Time{}, p.fail(t, "expected a duration, such as for 10m, for 1h or for 7d")
		}
		p.next()
		return p.options.Now.Add(d + time.Second - 1).UTC().Truncate(time.Second), nil
	case p.accept("until"):
		t := p.tok()
		at, err := time.Parse(time.RFC3339, t.text)
		if t.kind != tokenWord || err != nil || at.IsZero() {
			return time.Time{}, p.fail(t, "expected a time, such as until 2026-01-02T15:04:05Z")
		}
		p.next()
		return at.UTC(), nil
	}
	return time.Time{}, nil
}

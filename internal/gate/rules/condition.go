package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/suggest"
)

// condition reads what follows a keyword.
type condition struct {
	read    func(*parser, *ruleText, part) *Error
	not     bool   // "not" may stand in front of it
	instead string // of that, where it may not
}

// part is the keyword of a condition.
type part struct {
	token
	not bool
}

// conditions by keyword, and options.
var conditions map[string]*condition

func init() {
	ranges := func(k *kind) *condition {
		return &condition{func(p *parser, r *ruleText, at part) *Error { return p.ranges(r, k, at) }, true, ""}
	}
	end := func(dst bool) *condition {
		return &condition{func(p *parser, r *ruleText, at part) *Error { return p.end(r, dst, at) }, true, ""}
	}
	conditions = map[string]*condition{
		"src": end(false), "dst": end(true), "proto": ranges(&kindProto), "len": ranges(&kindLength), "vlan": ranges(&kindVLAN),
		"dscp": ranges(&kindDSCP), "type": ranges(&kindType), "sport": ranges(&kindSport), "dport": ranges(&kindDport),
		"flags":    {(*parser).flags, false, ": write the flags that are not set behind a slash, such as flags syn/syn+ack"},
		"fragment": {(*parser).fragment, true, ""},
		"iface":    {(*parser).iface, false, ": name the interfaces that are meant"},
		"for":      {(*parser).lifetime, false, ""},
		"until":    {(*parser).lifetime, false, ""},
		"dry-run":  {(*parser).dryRun, false, ""},
	}
	for name, version := range map[string]uint8{"ip": 4, "ip4": 4, "ipv4": 4, "ip6": 6, "ipv6": 6} {
		conditions[name] = &condition{func(p *parser, r *ruleText, at part) *Error {
			r.Match.Family = version
			return p.once(r, "family", at.token)
		}, false, ": write ip or ip6"}
	}
	for _, name := range append(flow.ProtoNames(), "icmp6") {
		if conditions[name] == nil {
			conditions[name] = &condition{(*parser).protocols, true, ""}
		}
	}
}

func isKeyword(s string) bool {
	s = strings.ToLower(s)
	return conditions[s] != nil || actions[s] != 0 || slices.Contains([]string{"and", "or", "not", "in", "set", "from", "per", "burst", "every", "port"}, s)
}

// otherParts are words of other tools, and what to write instead.
var otherParts = map[string]string{
	"or":        "write a list, such as dst port 80,443, or one rule for each",
	"port":      "write src port or dst port",
	"portrange": "write src port or dst port, such as dst port 8000-8099",
	"host":      "write src or dst",
	"net":       "write src or dst",
	"from":      "did you mean src?", "source": "did you mean src?", "saddr": "did you mean src?",
	"to": "did you mean dst?", "dest": "did you mean dst?", "destination": "did you mean dst?", "daddr": "did you mean dst?",
	"length": "did you mean len?", "greater": "write len >= and a number", "less": "write len <= and a number",
	"in": "did you mean iface?", "dev": "did you mean iface?", "iif": "did you mean iface?", "iifname": "did you mean iface?",
	"frag": "did you mean fragment?", "tos": "write the upper 6 bits as dscp", "icmp_type": "write icmp type", "icmptype": "write icmp type",
	"ether": "the gate matches IP packets: write iface, vlan, src or dst", "arp": "the gate passes ARP, always",
	"state": "the gate keeps no connections: write src, dst and ports in both directions, or flags",
	"ct":    "the gate keeps no connections: write src, dst and ports in both directions, or flags",
	"ttl":   "the gate does not match it; for a rule that ends, write for 1h", "timeout": "did you mean for?", "log": "write a rule sample",
	"counter": "every rule counts: leave it out", "all": "leave it out: a rule without conditions matches every packet",
	"any": "leave it out: a rule without conditions matches every packet", "*": "leave it out: a rule without conditions matches every packet",
	"dry_run": "did you mean dry-run?", "dryrun": "did you mean dry-run?", "burst": "it belongs to a limit, behind the rate: limit 10000/s burst 500",
	"per": "it belongs to a limit, behind the rate: limit 10000/s per src", "every": "it belongs to sample and tap: sample every 100",
	"syn": "write flags syn", "ack": "write flags ack", "rst": "write flags rst", "fin": "write flags fin",
}

// unknownPart reports a word that begins no condition.
func (p *parser) unknownPart(t token) *Error {
	word := strings.ToLower(t.text)
	if t.ends() {
		return p.fail(t, `expected a condition after "not"`)
	}
	if hint := otherParts[word]; hint != "" {
		return p.fail(t, "unexpected %s: %s", t.text, hint)
	}
	if actions[word] != 0 {
		return p.fail(t, "unexpected %s: write one rule per line, and what to do first", t.text)
	}
	if t.is(",") {
		return p.fail(t, "unexpected , behind %s: it takes no list here: write one value, or one rule for each", p.before(t))
	}
	if t.kind == tokenSign {
		return p.fail(t, "unexpected %s: expected a condition, such as src 192.0.2.1 or tcp", t.text)
	}
	if _, err := parsePrefix(t.text); err == nil || strings.HasPrefix(t.text, "@") {
		return p.fail(t, "write src %s or dst %s", t.text, t.text)
	}
	known := []string{"burst", "every", "per"}
	for name := range conditions {
		known = append(known, name)
	}
	slices.Sort(known)
	if near := suggest.Nearest(word, known); near != "" {
		return p.fail(t, "unknown condition %s: did you mean %s?", t.text, near)
	}
	return p.fail(t, "unknown condition %s: write ip, ip6, a protocol, type, src, dst, src port, dst port, flags, len, fragment, vlan, dscp, iface, for, until or dry-run", t.text)
}

// before is the word in front of one that was read.
func (p *parser) before(t token) string {
	i := slices.Index(p.tokens, t)
	if i < 1 {
		return "nothing"
	}
	return p.tokens[i-1].text
}

// end reads what follows src and dst: addresses or ports.
func (p *parser) end(r *ruleText, dst bool, at part) *Error {
	if p.accept("port") || p.accept("portrange") {
		if dst {
			return p.ranges(r, &kindDport, at)
		}
		return p.ranges(r, &kindSport, at)
	}
	if !p.accept("host") {
		p.accept("net")
	}
	if dst {
		return p.addrs(r, "dst", &r.Match.Dst, at)
	}
	return p.addrs(r, "src", &r.Match.Src, at)
}

// protocols reads a list of names without "proto" in front: tcp,udp.
func (p *parser) protocols(r *ruleText, at part) *Error {
	p.at-- // the name is the first value
	return p.ranges(r, &kindProto, at)
}

func (p *parser) fragment(r *ruleText, at part) *Error {
	is := !at.not
	r.Match.Fragment = &is
	return p.once(r, "fragment", at.token)
}

// maxIfaceName is how long the name of an interface is at most, in bytes.
const maxIfaceName = 15

func (p *parser) iface(r *ruleText, at part) *Error {
	if err := p.once(r, "iface", at.token); err != nil {
		return err
	}
	return p.list(func(t token) *Error {
		if t.kind != tokenQuoted && isKeyword(t.text) {
			return p.fail(t, "expected the name of an interface; write quotes around one that is called %s", t.text)
		}
		if !validGlob(t.text) {
			return p.fail(t, "expected the name of an interface or a pattern, such as eth0 or veth*")
		}
		if !strings.ContainsAny(t.text, `*[\`) && len(t.text) > maxIfaceName {
			return p.fail(t, "no interface has this name: names have at most %d bytes", maxIfaceName)
		}
		if !slices.Contains(r.Match.Ifaces, t.text) {
			r.Match.Ifaces = append(r.Match.Ifaces, t.text)
		}
		return nil
	}, "the name of an interface, such as eth0")
}

// lifetime reads for and until.
func (p *parser) lifetime(r *ruleText, at part) (err *Error) {
	if err := p.once(r, "end of a rule", at.token); err != nil {
		return err
	}
	p.at--
	r.Until, err = p.until()
	return err
}

func (p *parser) dryRun(r *ruleText, at part) *Error {
	r.DryRun = true
	return p.once(r, "dry-run", at.token)
}

// flags reads syn, syn+fin, syn/syn+ack, none/syn+ack, and nft's & (syn|ack) = syn.
func (p *parser) flags(r *ruleText, at part) *Error {
	if err := p.once(r, "flags", at.token); err != nil {
		return err
	}
	const want = "flags that are set, such as syn+ack, or also that others are not, such as syn/syn+ack"
	if p.accept("&") {
		return p.maskedFlags(r)
	}
	p.accept("=")
	t := p.next()
	set, mask, masked := strings.Cut(strings.ToLower(t.text), "/")
	value, ok := parseFlags(set)
	f := Flags{value, value}
	if masked {
		all, valid := parseFlags(mask)
		f.Mask, ok = all, ok && valid
	}
	switch {
	case t.kind != tokenWord || !ok:
		return p.fail(t, "expected %s; the flags are fin, syn, rst, psh, ack, urg, ece, cwr and none", want)
	case p.tok().is(","):
		return p.fail(p.tok(), "write syn+ack for both flags; for either of them write one rule for each")
	}
	return p.setFlags(r, t, f)
}

func (p *parser) setFlags(r *ruleText, t token, f Flags) *Error {
	switch {
	case f.Mask == 0:
		return p.fail(t, "this holds for every packet: name the flags that are not set behind a slash, such as none/syn+ack")
	case f.Value&^f.Mask != 0:
		return p.fail(t, "never true: a flag that must be set is not among those that are examined")
	}
	r.Match.TCPFlags = &f
	return nil
}

// maskedFlags reads the rest of flags & (syn|ack) = syn.
func (p *parser) maskedFlags(r *ruleText) *Error {
	first := p.tok()
	mask, err := p.flagList()
	if err != nil {
		return err
	}
	if t := p.tok(); !p.accept("=") {
		return p.fail(t, "expected = and the flags that are set, such as flags & (syn|ack) == syn")
	}
	value, err := p.flagList()
	if err != nil {
		return err
	}
	return p.setFlags(r, first, Flags{mask, value})
}

// flagList reads syn|ack, with or without parentheses.
func (p *parser) flagList() (flags uint8, err *Error) {
	open := p.accept("(")
	for {
		t := p.next()
		one, ok := parseFlags(strings.ToLower(strings.TrimPrefix(t.text, "tcp-")))
		if t.kind != tokenWord || !ok {
			return 0, p.fail(t, "expected a TCP flag: fin, syn, rst, psh, ack, urg, ece, cwr or none")
		}
		flags |= one
		if !p.accept("|") {
			break
		}
	}
	if t := p.tok(); open && !p.accept(")") {
		return 0, p.fail(t, "expected ) or |")
	}
	return flags, nil
}

func parseFlags(s string) (uint8, bool) {
	if s == "none" {
		return 0, true
	}
	n, err := flow.ParseTCPFlags(s)
	return uint8(n), err == nil && n < 256
}

// service is the port of a name.
func service(name string) (uint16, bool) { return filter.Service(name) }

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

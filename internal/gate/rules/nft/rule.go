package nft

import (
	"fmt"
	"slices"
	"strings"
)

// ruleReader reads one rule of a chain.
type ruleReader struct {
	*translation
	words   []string
	seen    map[string]bool // of conditions that are written once: versions, protocols
	parts   []string
	action  string
	counter bool
}

// field is what a condition of nft is called here.
type field struct {
	name  string   // of the condition
	needs []string // conditions in front: a version or protocol
	names map[string]string
}

// icmpTypes by the names of nft.
var icmpTypes = map[string]string{
	"echo-reply": "0", "destination-unreachable": "3", "source-quench": "4", "redirect": "5", "echo-request": "8",
	"router-advertisement": "9", "router-solicitation": "10", "time-exceeded": "11", "parameter-problem": "12",
	"timestamp-request": "13", "timestamp-reply": "14", "info-request": "15", "info-reply": "16", "address-mask-request": "17", "address-mask-reply": "18",
}

var icmp6Types = map[string]string{
	"destination-unreachable": "1", "packet-too-big": "2", "time-exceeded": "3", "parameter-problem": "4", "echo-request": "128", "echo-reply": "129",
	"mld-listener-query": "130", "mld-listener-report": "131", "mld-listener-done": "132", "mld-listener-reduction": "132", "nd-router-solicit": "133",
	"nd-router-advert": "134", "nd-neighbor-solicit": "135", "nd-neighbor-advert": "136", "nd-redirect": "137", "router-renumbering": "138",
	"ind-neighbor-solicit": "141", "ind-neighbor-advert": "142", "mld2-listener-report": "143",
}

var protoNames = map[string]string{"ipv6-icmp": "icmpv6"}

var fields = map[string]field{
	"ip saddr": {"src", []string{"ip"}, nil}, "ip daddr": {"dst", []string{"ip"}, nil},
	"ip6 saddr": {"src", []string{"ip6"}, nil}, "ip6 daddr": {"dst", []string{"ip6"}, nil},
	"ip protocol": {"proto", []string{"ip"}, protoNames}, "meta l4proto": {"proto", nil, protoNames},
	"tcp sport": {"src port", []string{"tcp"}, nil}, "tcp dport": {"dst port", []string{"tcp"}, nil},
	"udp sport": {"src port", []string{"udp"}, nil}, "udp dport": {"dst port", []string{"udp"}, nil},
	"sctp sport": {"src port", []string{"sctp"}, nil}, "sctp dport": {"dst port", []string{"sctp"}, nil},
	"udplite sport": {"src port", []string{"udplite"}, nil}, "udplite dport": {"dst port", []string{"udplite"}, nil},
	"th sport": {"src port", nil, nil}, "th dport": {"dst port", nil, nil},
	"icmp type": {"type", []string{"ip", "icmp"}, icmpTypes}, "icmpv6 type": {"type", []string{"ip6", "icmpv6"}, icmp6Types},
	"ip dscp": {"dscp", []string{"ip"}, nil}, "ip6 dscp": {"dscp", []string{"ip6"}, nil},
	"ip length": {"len", []string{"ip"}, nil}, "vlan id": {"vlan", nil, nil},
	"iifname": {"iface", nil, nil}, "meta iifname": {"iface", nil, nil}, "iif": {"iface", nil, nil}, "meta iif": {"iface", nil, nil},
}

// others have no equivalent, and why.
var others = map[string]string{
	"ct": "rules have no connection tracking", "jump": "rules have no chains: translate the other chain with --chain", "goto": "rules have no chains: translate the other chain with --chain",
	"reject": "the gate answers nothing: write drop", "log": "write a rule sample", "return": "rules have no chains", "queue": "rules pass or drop",
	"masquerade": "the gate changes no packet", "snat": "the gate changes no packet", "dnat": "the gate changes no packet", "redirect": "the gate changes no packet",
	"notrack": "rules have no connection tracking", "fib": "rules do not look up routes",
}

const limitWanted = "a limit drops what exceeds it: write limit rate over N/second and drop"

// next reads a condition or statement; why: it has no equivalent.
func (r *ruleReader) next() (why string) {
	first := r.take()
	switch first {
	case "counter":
		r.counter = true
		if len(r.words) >= 4 && r.words[0] == "packets" {
			r.words = r.words[4:]
		}
		return ""
	case "accept":
		return r.decide("pass")
	case "drop":
		return r.decide("drop")
	case "comment":
		r.take()
		return ""
	case "limit":
		return r.limit()
	}
	if len(r.words) > 0 {
		if first == "tcp" && r.words[0] == "flags" {
			r.take()
			return r.flags()
		}
		if (first == "meta" && (r.words[0] == "nfproto" || r.words[0] == "protocol")) && len(r.words) > 1 {
			return r.family()
		}
		if f, ok := fields[first+" "+r.words[0]]; ok {
			r.take()
			return r.condition(f)
		}
	}
	if f, ok := fields[first]; ok {
		return r.condition(f)
	}
	if why, ok := others[first]; ok {
		return why
	}
	if len(r.words) > 0 && !strings.ContainsAny(r.words[0], "{}(),@") {
		first += " " + r.words[0]
	}
	return first + " has no equivalent"
}

func (r *ruleReader) take() string {
	if len(r.words) == 0 {
		return ""
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

// once adds a version or protocol in front of what needs it.
func (r *ruleReader) once(part string) {
	if !r.seen[part] {
		r.seen[part] = true
		r.parts = append(r.parts, part)
	}
}

func (r *ruleReader) decide(action string) string {
	switch {
	case r.action == "limit" && action == "drop":
		r.action = r.parts[0]
		r.parts = r.parts[1:]
	case r.action == "limit":
		return limitWanted
	case r.action != "":
		return "it has two verdicts"
	default:
		r.action = action
	}
	return ""
}

// condition reads [ != ] value, { values } or @set.
func (r *ruleReader) condition(f field) string {
	if r.action != "" {
		return "a condition behind " + r.action + " has no equivalent"
	}
	op := ""
	if len(r.words) > 0 && slices.Contains([]string{"!=", "==", "<", "<=", ">", ">="}, r.words[0]) {
		op = r.take()
	}
	values, why := r.values(f)
	if why != "" {
		return why
	}
	for _, need := range f.needs {
		r.once(need)
	}
	switch {
	case f.name == "iface" && op == "!=":
		return "interfaces cannot be negated: name those that are meant"
	case op == "!=":
		op = "not "
	case op == "==":
		op = ""
	case op != "":
		op += " "
	}
	if f.name == "proto" && op == "" && !strings.ContainsAny(values, "0123456789,-") {
		r.once(values)
		return ""
	}
	r.parts = append(r.parts, f.name+" "+op+values)
	return ""
}

// values reads what a condition compares with.
func (r *ruleReader) values(f field) (text, why string) {
	if len(r.words) == 0 {
		return "", "a value is missing"
	}
	list := []string{r.take()}
	if list[0] == "{" {
		list = nil
		for len(r.words) > 0 && r.words[0] != "}" {
			if w := r.take(); w != "," {
				list = append(list, w)
			}
		}
		r.take()
	} else {
		for len(r.words) > 1 && r.words[0] == "," { // tcp dport 80,443 of older versions
			r.take()
			list = append(list, r.take())
		}
	}
	if len(list) == 0 {
		return "", "a value is missing"
	}
	for i, w := range list {
		if set, ok := strings.CutPrefix(w, "@"); ok {
			why, known := r.sets[set]
			if !known {
				why = "the set " + set + " is not defined"
			}
			if why != "" {
				return "", why
			}
		}
		if strings.ContainsAny(w, "{}:") && f.name != "src" && f.name != "dst" || w == "vmap" || w == "map" || w == "." || w == "&" {
			return "", w + " has no equivalent"
		}
		if other := f.names[w]; other != "" {
			list[i] = other
		}
	}
	return strings.Join(list, ","), ""
}

// family reads meta nfproto ipv4 and meta protocol ip6.
func (r *ruleReader) family() string {
	r.take()
	switch w := r.take(); w {
	case "ipv4", "ip":
		r.once("ip")
	case "ipv6", "ip6":
		r.once("ip6")
	default:
		return fmt.Sprintf("rules match IPv4 and IPv6, and not %s", w)
	}
	return ""
}

// flags reads syn / syn,ack; & (syn | ack) == syn; ! syn,ack and, of one flag, syn.
func (r *ruleReader) flags() string {
	r.once("tcp")
	var b strings.Builder
	for len(r.words) > 0 && !r.endsFlags() {
		b.WriteString(r.take())
	}
	text := b.String()
	plus := strings.NewReplacer(",", "+", "|", "+", "(", "", ")", "", "&", "", "!", "")
	value, mask, isSlash := strings.Cut(text, "/")
	masked, equal, isEqual := strings.Cut(text, "==")
	switch {
	case strings.Contains(text, "!="), strings.ContainsAny(text, "{}@"), text == "":
	case isEqual && masked[0] == '&':
		if strings.HasPrefix(equal, "0x0") || equal == "0" {
			equal = "none"
		}
		return r.setFlags(plus.Replace(equal), plus.Replace(masked))
	case isSlash:
		return r.setFlags(plus.Replace(value), plus.Replace(mask))
	case text[0] == '!':
		return r.setFlags("none", plus.Replace(text))
	case !strings.ContainsAny(text, "&=,|"):
		return r.setFlags(text, text)
	}
	return "flags " + text + " has no equivalent: a rule names flags that are all set, or not set"
}

func (r *ruleReader) setFlags(value, mask string) string {
	r.parts = append(r.parts, "flags "+value+"/"+mask)
	return ""
}

// endsFlags reports whether the next word is no part of a condition about flags.
func (r *ruleReader) endsFlags() bool {
	_, isField := fields[strings.Join(r.words[:min(2, len(r.words))], " ")]
	_, isOther := others[r.words[0]]
	return isField || isOther || slices.Contains([]string{"accept", "drop", "counter", "limit", "comment", "meta"}, r.words[0])
}

// limit reads rate over 100/second [burst 5 packets].
func (r *ruleReader) limit() string {
	if len(r.words) < 3 || r.words[0] != "rate" || r.words[1] != "over" || r.action != "" {
		return limitWanted
	}
	r.words = r.words[2:]
	rate := "limit " + r.take()
	bytes := false
	if len(r.words) > 0 && strings.HasSuffix(r.words[0], "/second") { // 10 mbytes/second
		unit := r.take()
		bytes = true
		factor := map[string]string{"bytes/second": "B", "kbytes/second": "KiB", "mbytes/second": "MiB"}[unit]
		if factor == "" {
			return unit + " has no equivalent"
		}
		rate += factor + "/s"
	}
	if len(r.words) > 2 && r.words[0] == "burst" {
		rate += " burst " + r.words[1]
		if factor := map[string]string{"kbytes": "KiB", "mbytes": "MiB"}[r.words[2]]; bytes {
			rate += factor
		}
		r.words = r.words[3:]
	} else if !bytes {
		rate += " burst 5" // nft's
	}
	r.action, r.parts = "limit", append([]string{rate}, r.parts...)
	return ""
}

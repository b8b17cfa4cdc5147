package rules

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// String is the whole rule set in its plainest form; Parse reads it back.
func (rs *Ruleset) String() string {
	var b strings.Builder
	for _, s := range rs.Sets {
		b.WriteString(s.String() + "\n")
	}
	for _, r := range rs.Rules {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
}

// identify gives each rule its text and an ID made of it. The end of a rule is no part of
// its ID: it moves each time a file with "for 1h" is read.
func (rs *Ruleset) identify() {
	taken := map[uint32]bool{0: true}
	for _, r := range rs.Rules {
		r.Text = r.String()
		lasting := *r
		lasting.Until = time.Time{}
		// The second of two equal rules, too, has its own.
		for n := 0; ; n++ {
			h := fnv.New32a()
			fmt.Fprintf(h, "%s#%d", lasting.String(), n)
			if r.ID = h.Sum32(); !taken[r.ID] {
				break
			}
		}
		taken[r.ID] = true
	}
}

// String is the rule in canonical form.
func (r *Rule) String() string {
	parts := []string{r.Action.String()}
	if r.Limit != nil {
		parts = append(parts, r.Limit.text())
	}
	if r.Every > 1 {
		parts = append(parts, fmt.Sprintf("every %d", r.Every))
	}
	parts = r.Match.texts(parts)
	if !r.Until.IsZero() {
		parts = append(parts, "until "+formatTime(r.Until))
	}
	if r.DryRun {
		parts = append(parts, "dry-run")
	}
	return strings.Join(parts, " ")
}

// texts appends the conditions.
func (m *Match) texts(parts []string) []string {
	add := func(name, values string) {
		if values != "" {
			parts = append(parts, strings.TrimSpace(name+" "+values))
		}
	}
	if len(m.Ifaces) > 0 {
		names := make([]string, len(m.Ifaces))
		for i, name := range m.Ifaces {
			names[i] = quoteWord(name)
		}
		add("iface", strings.Join(names, ","))
	}
	switch m.Family {
	case 4:
		parts = append(parts, "ip")
	case 6:
		parts = append(parts, "ip6")
	}
	add("vlan", m.VLAN.text(rangeText))
	add("dscp", m.DSCP.text(rangeText))
	if name, ok := m.protoName(); ok {
		parts = append(parts, name)
	} else {
		add("proto", m.Proto.text(protoText))
	}
	add("type", m.ICMPType.text(rangeText))
	add("src", m.Src.text())
	add("src port", m.Sport.text(rangeText))
	add("dst", m.Dst.text())
	add("dst port", m.Dport.text(rangeText))
	if m.TCPFlags != nil {
		add("flags", m.TCPFlags.text())
	}
	add("len", m.Length.text(rangeText))
	if m.Fragment != nil && *m.Fragment {
		parts = append(parts, "fragment")
	} else if m.Fragment != nil {
		parts = append(parts, "not fragment")
	}
	return parts
}

// protoName is the name of a protocol that can stand by itself.
func (m *Match) protoName() (string, bool) {
	if m.Proto.Not || len(m.Proto.List) != 1 || m.Proto.List[0].First != m.Proto.List[0].Last {
		return "", false
	}
	name := flow.ProtoName(uint8(m.Proto.List[0].First))
	return name, name[0] > '9' && name != "ipv6" // which stands for the version
}

func protoText(r Range) string {
	if r.First == r.Last {
		return flow.ProtoName(uint8(r.First))
	}
	return rangeText(r)
}

func rangeText(r Range) string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func (r *Ranges) text(one func(Range) string) string {
	var values []string
	for _, s := range r.Sets {
		values = append(values, "@"+s)
	}
	for _, n := range r.List {
		values = append(values, one(n))
	}
	return negated(r.Not, values)
}

func (a *Addrs) text() string {
	var values []string
	for _, s := range a.Sets {
		values = append(values, "@"+s)
	}
	for _, p := range a.Prefixes {
		values = append(values, prefixText(p))
	}
	return negated(a.Not, values)
}

func negated(not bool, values []string) string {
	text := strings.Join(values, ",")
	if not && text != "" {
		return "not " + text
	}
	return text
}

func (f *Flags) text() string {
	name := func(flags uint8) string {
		if flags == 0 {
			return "none"
		}
		return flow.TCPFlagNames(uint16(flags))
	}
	if f.Value == f.Mask {
		return name(f.Value)
	}
	return name(f.Value) + "/" + name(f.Mask)
}

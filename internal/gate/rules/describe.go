package rules

import (
	"encoding/hex"
	"net/netip"
	"strings"
)

func isNumber(s string) bool { return s != "" && '0' <= s[0] && s[0] <= '9' }

// describedLength is the length of a packet whose description has none.
const describedLength = 60

// ParsePacket reads a packet that is described with the conditions of a rule, each with
// one value: src 192.0.2.1 dst 198.51.100.2 tcp dst port 443 syn. What is not described
// is absent; the length is 60 bytes.
func ParsePacket(text string) (*Packet, error) {
	p := &parser{source: newSource("packet", strings.ReplaceAll(text, "\n", " ")), packet: true, sets: map[string]*Set{}}
	p.tokens, p.errs = p.lex()
	r := &ruleText{Rule: &Rule{}, parts: map[string]token{}}
	p.read = append(p.read, r)
	if p.tok().ends() {
		p.errs = append(p.errs, p.fail(p.tok(), "expected a packet, such as src 192.0.2.1 tcp dst port 443"))
	}
	for len(p.errs) == 0 && !p.tok().ends() {
		if err := p.part(r); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	if len(p.errs) == 0 {
		p.check()
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return p.packetOf(r)
}

// packetOf is the packet of which a match is the description.
func (p *parser) packetOf(r *ruleText) (*Packet, error) {
	m := &r.Match
	q := &Packet{Family: m.Family, Length: describedLength}
	several := func(name string) error {
		return Errors{p.fail(r.parts[name], "a packet has one %s: write one value, and no not", name)}
	}
	for _, end := range []struct {
		name string
		a    *Addrs
		out  *netip.Addr
	}{{"src", &m.Src, &q.Src}, {"dst", &m.Dst, &q.Dst}} {
		switch {
		case r.parts[end.name].line == 0:
		case end.a.Not || len(end.a.Prefixes) != 1 || len(end.a.Sets) > 0 || !end.a.Prefixes[0].IsSingleIP():
			return nil, several(end.name)
		default:
			*end.out = end.a.Prefixes[0].Addr()
		}
	}
	var n [len(kinds)]uint16
	var has [len(kinds)]bool
	for k, kind := range kinds {
		_, has[k] = r.parts[kind.name]
		values := kind.of(m)
		switch {
		case !has[k]:
		case values.Not || len(values.Sets) > 0 || len(values.List) != 1 || values.List[0].First != values.List[0].Last:
			return nil, several(kind.name)
		default:
			n[k] = values.List[0].First
		}
	}
	q.Proto, q.HasProto = uint8(n[0]), has[0]
	q.ICMPType, q.HasICMPType = uint8(n[1]), has[1]
	q.Sport, q.Dport, q.HasPorts = n[2], n[3], has[2] || has[3]
	q.VLAN, q.Tagged, q.DSCP = n[4], has[4], uint8(n[5])
	if has[6] {
		q.Length = n[6]
	}
	if m.TCPFlags != nil {
		q.TCPFlags, q.HasTCPFlags = m.TCPFlags.Value, true
	}
	q.Fragment = m.Fragment != nil && *m.Fragment
	if len(m.Ifaces) > 0 {
		q.Iface = m.Ifaces[0]
	}
	q.complete()
	return q, nil
}

// complete gives a described packet the version and addresses that it must have.
func (q *Packet) complete() {
	for _, a := range []netip.Addr{q.Src, q.Dst} {
		if a.IsValid() && q.Family == 0 {
			q.Family = 6
			if a.Is4() {
				q.Family = 4
			}
		}
	}
	if q.Family == 0 {
		q.Family = 4
		if q.Proto == protoICMPv6 {
			q.Family = 6
		}
	}
	none := netip.IPv4Unspecified()
	if q.Family == 6 {
		none = netip.IPv6Unspecified()
	}
	for _, a := range []*netip.Addr{&q.Src, &q.Dst} {
		if !a.IsValid() {
			*a = none
		}
	}
}

// ParseHex reads a packet from its bytes in hexadecimal, with or without blanks and
// colons: an Ethernet frame, or an IP packet if its header says that it has just this
// length. ok is false if the text is not hexadecimal.
func ParseHex(text string) (p *Packet, ok bool) {
	data, isIP, ok := HexBytes(text)
	switch {
	case !ok:
		return nil, false
	case isIP:
		return ReadIP(data), true
	}
	return ReadEthernet(data), true
}

// HexBytes are the bytes of such a packet. isIP: they begin with its IP header.
func HexBytes(text string) (data []byte, isIP, ok bool) {
	data, err := hex.DecodeString(strings.NewReplacer(" ", "", ":", "", "\n", "", "\t", "").Replace(text))
	if err != nil || len(data) < etherLen {
		return nil, false, false
	}
	p := ReadIP(data)
	return data, p.Src.IsValid() && int(p.Length) == len(data), true
}

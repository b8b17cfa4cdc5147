package gate

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
)

// twinRules is a random rule set, as the gate and as nftables have it.
type twinRules struct {
	rand *rand.Rand
	gate strings.Builder
	nft  strings.Builder // of a chain
	sets strings.Builder // of nftables
}

// twinFamily is what the two languages call a version of IP.
type twinFamily struct {
	v6              bool
	gate, nft, name string
}

var twinFamilies = []twinFamily{{false, "ip", "meta protocol ip", "ip"}, {true, "ip6", "meta protocol ip6", "ip6"}}

func newTwinRules(r *rand.Rand, n int) *twinRules {
	t := &twinRules{rand: r}
	t.addSets()
	for range n {
		t.addRule()
	}
	return t
}

func (t *twinRules) addSets() {
	var all []string
	for i, f := range twinFamilies {
		var list []string
		for range 300 {
			list = append(list, t.prefix(f, 24+8*i, 8+24*i))
		}
		all = append(all, list...)
		fmt.Fprintf(&t.sets, "set many%s { type %s; flags interval; auto-merge; elements = { %s }; }\n", f.name, []string{"ipv4_addr", "ipv6_addr"}[i], strings.Join(list, ", "))
	}
	fmt.Fprintf(&t.gate, "set many { %s }\n", strings.Join(all, ", "))
}

// prefix is one near the addresses of frames, that is longer than least by up to more.
func (t *twinRules) prefix(f twinFamily, least, more int) string {
	var a [16]byte
	address(t.rand, f.v6, a[:])
	return prefixOf(f.v6, a[:], least+t.rand.IntN(more+1))
}

func (t *twinRules) addRule() {
	f := twinFamilies[t.rand.IntN(2)]
	own, other := []string{f.gate}, []string{f.nft}
	for _, add := range twinConditions {
		if g, n := add(t, f); g != "" {
			own, other = append(own, g), append(other, n)
		}
	}
	action := t.rand.IntN(3)
	fmt.Fprintf(&t.gate, "%s %s\n", []string{"drop", "pass", "count"}[action], strings.Join(own, " "))
	fmt.Fprintf(&t.nft, "%s counter %s\n", strings.Join(other, " "), []string{"drop", "accept", ""}[action])
}

// one is true once in so many cases.
func (t *twinRules) one(of int) bool { return t.rand.IntN(of) == 0 }

// span is a range of numbers below a limit, in both languages alike.
func (t *twinRules) span(limit int) string {
	a := t.rand.IntN(limit)
	if t.one(2) {
		return fmt.Sprint(a)
	}
	return fmt.Sprintf("%d-%d", a, a+1+t.rand.IntN(limit-a))
}

// twinConditions add conditions of a rule, or none, in the order in which the gate takes them.
var twinConditions = []func(t *twinRules, f twinFamily) (gate, nft string){
	func(t *twinRules, f twinFamily) (string, string) {
		if !t.one(6) {
			return "", ""
		}
		id := t.rand.IntN(twinVLANs)
		return fmt.Sprintf("vlan %d", id), fmt.Sprintf("@ll,96,16 0x8100 @ll,116,12 %d", id)
	},
	func(t *twinRules, f twinFamily) (string, string) {
		if !t.one(5) {
			return "", ""
		}
		n := t.span(63)
		return "dscp " + n, fmt.Sprintf("%s dscp %s", f.name, n)
	},
	addTwinProto,
	func(t *twinRules, f twinFamily) (string, string) { return t.addresses(f, "src", "saddr") },
	func(t *twinRules, f twinFamily) (string, string) { return t.addresses(f, "dst", "daddr") },
	func(t *twinRules, f twinFamily) (string, string) {
		if !t.one(5) {
			return "", ""
		}
		from, to := 40+t.rand.IntN(40), 90+t.rand.IntN(60)
		if f.v6 {
			return fmt.Sprintf("len %d-%d", from, to), fmt.Sprintf("ip6 length %d-%d", max(from-40, 0), to-40)
		}
		return fmt.Sprintf("len %d-%d", from, to), fmt.Sprintf("ip length %d-%d", from, to)
	},
	func(t *twinRules, f twinFamily) (string, string) {
		if !t.one(6) {
			return "", ""
		}
		i := t.rand.IntN(2)
		nft := []string{"ip frag-off & 0x3fff != 0", "ip frag-off & 0x3fff == 0"}
		if f.v6 {
			nft = []string{"exthdr frag exists", "exthdr frag missing"}
		}
		return []string{"fragment", "not fragment"}[i], nft[i]
	},
}

func (t *twinRules) addresses(f twinFamily, own, other string) (string, string) {
	not, isNot := "", ""
	if t.one(4) {
		not, isNot = "not ", "!= "
	}
	switch t.rand.IntN(6) {
	case 0, 1:
		p := t.prefix(f, 6, 26)
		return fmt.Sprintf("%s %s%s", own, not, p), fmt.Sprintf("%s %s %s%s", f.name, other, isNot, p)
	case 2:
		return fmt.Sprintf("%s %s@many", own, not), fmt.Sprintf("%s %s %s@many%s", f.name, other, isNot, f.name)
	}
	return "", ""
}

// addTwinProto adds a protocol with ports, a type or flags. To the gate later fragments have none. nftables at ingress loads up to
// four bytes without asking whether the packet is a later fragment: of IPv4 it compares data, and of IPv6, where the kernel
// finds no upper header, the IPv6 header itself (flags are then the sixth byte of the source). So these rules leave them out.
func addTwinProto(t *twinRules, f twinFamily) (own, other string) {
	own, other = twinProto(t, f)
	if strings.Contains(own, " ") {
		other = map[bool]string{false: "ip frag-off & 0x1fff == 0 ", true: "meta mark 0 "}[f.v6] + other
	}
	return own, other
}

// twinLater marks later fragments of IPv6, about which a rule of nftables cannot say that a packet is none.
const twinLater = "frag frag-off != 0 meta mark set 1\n"

func twinProto(t *twinRules, f twinFamily) (string, string) {
	ports := func(proto string) (string, string) {
		own, other := proto, "meta l4proto "+proto
		for _, side := range [][2]string{{"src", "sport"}, {"dst", "dport"}} {
			if t.one(2) {
				n := t.span(twinPorts)
				own, other = own+fmt.Sprintf(" %s port %s", side[0], n), other+fmt.Sprintf(" th %s %s", side[1], n)
			}
		}
		return own, other
	}
	switch t.rand.IntN(7) {
	case 0:
		return ports("tcp")
	case 1:
		return ports("udp")
	case 2:
		return ports("sctp")
	case 3:
		n := t.span(twinPorts)
		return "tcp,udp dst port " + n, "meta l4proto { tcp, udp } th dport " + n
	case 4:
		name := "icmp"
		if f.v6 {
			name = "icmp6"
		}
		n := t.span(140)
		return fmt.Sprintf("%s type %s", name, n), fmt.Sprintf("meta l4proto %s %s type %s", map[bool]string{false: "icmp", true: "ipv6-icmp"}[f.v6], map[bool]string{false: "icmp", true: "icmpv6"}[f.v6], n)
	case 5:
		return "tcp flags syn/syn+ack", "meta l4proto tcp tcp flags & (syn | ack) == syn"
	}
	return "", ""
}

// Frames have VLANs and ports below these.
const twinVLANs, twinPorts = 4, 40

// address writes one of a few networks.
func address(r *rand.Rand, v6 bool, to []byte) {
	n := r.Uint32()
	if v6 {
		copy(to, []byte{0x20, 1, 0xd, 0xb8, 0, byte(n & 3), 0, byte(n >> 2 & 3), 0, 0, 0, 0, 0, 0, byte(n >> 4 & 1), byte(n >> 8)})
		return
	}
	copy(to, []byte{10, byte(n & 3), byte(n >> 2 & 3), byte(n >> 8)})
}

// twinFrame is a whole packet: some are fragments, or have options, extension headers or a VLAN tag. Its number is in the
// source address of Ethernet.
func twinFrame(r *rand.Rand, number uint32, b []byte) []byte {
	b = append(b[:0], 2, 0, 0, 0, 0, 2, 2, 0)
	b = binary.BigEndian.AppendUint32(b, number)
	v6 := r.IntN(2) == 0
	if r.IntN(6) == 0 {
		b = append(b, 0x81, 0, byte(r.IntN(8))<<5, byte(r.IntN(twinVLANs)))
	}
	upper := make([]byte, 0, 128)
	proto, fragment := twinUpper(r, v6, &upper)
	if v6 {
		return twinIPv6(r, append(b, 0x86, 0xdd), proto, fragment, upper)
	}
	return twinIPv4(r, append(b, 8, 0), proto, fragment, upper)
}

// twinUpper writes a header and data; fragment is its offset in units of 8 bytes, above it whether more follow.
func twinUpper(r *rand.Rand, v6 bool, to *[]byte) (proto byte, fragment uint16) {
	icmp := byte(1)
	if v6 {
		icmp = 58
	}
	proto = []byte{6, 6, 17, 17, icmp, 132, 136, 47, 50}[r.IntN(9)]
	h := make([]byte, 20+r.IntN(60))
	for i := range h {
		h[i] = byte(r.Uint32())
	}
	h[0], h[1], h[2], h[3] = 0, byte(r.IntN(twinPorts)), 0, byte(r.IntN(twinPorts))
	if proto == icmp {
		h[0] = byte(r.IntN(140))
	}
	if proto == 6 {
		h[12] = 5 << 4
	}
	*to = append(*to, h...)
	switch r.IntN(10) {
	case 0:
		return proto, 1 // the first of several
	case 1:
		return proto, uint16(1+r.IntN(100))<<3 | uint16(r.IntN(2))
	}
	return proto, 0
}

func twinIPv4(r *rand.Rand, b []byte, proto byte, fragment uint16, upper []byte) []byte {
	words := 5
	if r.IntN(6) == 0 {
		words += 1 + r.IntN(3)
	}
	start := len(b)
	b = append(b, 0x40|byte(words), byte(r.IntN(256)))
	b = binary.BigEndian.AppendUint16(b, uint16(4*words+len(upper)))
	b = append(b, byte(r.Uint32()), byte(r.Uint32()))
	b = binary.BigEndian.AppendUint16(b, fragment>>3|fragment&1<<13)
	b = append(b, byte(1+r.IntN(255)), proto, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	address(r, false, b[start+12:])
	address(r, false, b[start+16:])
	for range words - 5 {
		b = append(b, 1, 1, 1, 1) // no operation
	}
	return append(b, upper...)
}

func twinIPv6(r *rand.Rand, b []byte, proto byte, fragment uint16, upper []byte) []byte {
	start := len(b)
	b = append(b, 0x60|byte(r.IntN(16)), byte(r.IntN(16))<<4, 0, 0, 0, 0, 0, byte(1+r.IntN(255)))
	b = append(b, make([]byte, 32)...)
	address(r, true, b[start+8:])
	address(r, true, b[start+24:])
	next := start + 6
	add := func(kind byte, header ...byte) {
		b[next] = kind
		next = len(b)
		b = append(b, header...)
	}
	if r.IntN(6) == 0 {
		add(0, 0, 0, 1, 4, 0, 0, 0, 0) // Hop-by-Hop Options: PadN
	}
	if fragment != 0 {
		add(44, 0, 0, byte(fragment>>8), byte(fragment), 0, 0, 0, byte(r.Uint32()))
	} else if r.IntN(6) == 0 {
		add(60, 0, 0, 1, 4, 0, 0, 0, 0)
	}
	b[next] = proto
	b = append(b, upper...)
	binary.BigEndian.PutUint16(b[start+4:], uint16(len(b)-start-40))
	return b
}

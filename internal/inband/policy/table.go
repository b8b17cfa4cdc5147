package policy

import (
	"net/netip"
	"slices"
)

// Mask has a bit for each policy, in the order of a list.
type Mask struct {
	Named uint64 // policies that may name a packet to this address
	Held  uint64 // policies that cover the address, but do not mean it
}

// Addresses that a policy means only when its own prefix is among them: ::/0
// does not name multicast.
var special = []netip.Prefix{netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8")}

// Table turns the prefixes of policies into a table in which the longest prefix alone tells
// of all policies that cover an address.
func Table(to []netip.Prefix) map[netip.Prefix]Mask {
	covers := func(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }
	table := map[netip.Prefix]Mask{}
	for _, p := range to {
		table[p] = Mask{}
		for _, s := range special {
			if covers(p, s) {
				table[s] = Mask{}
			}
		}
	}
	for prefix := range table {
		var mask Mask
		inside := slices.IndexFunc(special, func(s netip.Prefix) bool { return covers(s, prefix) })
		for i, p := range to {
			switch {
			case !covers(p, prefix):
			case inside < 0 || covers(special[inside], p):
				mask.Named |= 1 << i
			default:
				mask.Held |= 1 << i
			}
		}
		table[prefix] = mask
	}
	return table
}

// ProtoBits has a bit for each protocol that the policy is about.
func (p Policy) ProtoBits() (bits [4]uint64) {
	for n := range 256 {
		if p.Names(uint8(n)) {
			bits[n/64] |= 1 << (n % 64)
		}
	}
	return bits
}

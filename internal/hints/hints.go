// Package hints is what network cards know of a packet before XDP programs see it:
// receive time, hash and VLAN tag. Input: an interface. Output: what its driver
// offers, how often it was there, and what serves instead. waymark hints and
// waymark doctor call it, and the stage of the datapath that reads hints.
package hints

import "fmt"

// Kind is one hint.
type Kind uint8

// The kinds, in the order of enum hint (bpf/hints/abi.h).
const (
	Time Kind = iota
	Hash
	VLAN
	kinds
)

// Kinds are all.
func Kinds() []Kind { return []Kind{Time, Hash, VLAN} }

// facts of each kind.
var facts = [kinds]struct {
	name    string
	offered Offer
	instead string
}{
	Time: {"time", 1 << 0, "clock of this host, read by the program"},
	Hash: {"hash", 1 << 1, "computed from addresses and ports"},
	VLAN: {"vlan", 1 << 2, "read from the frame"},
}

func (k Kind) String() string { return facts[k].name }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error {
	for _, one := range Kinds() {
		if one.String() == string(text) {
			*k = one
			return nil
		}
	}
	return fmt.Errorf("unknown hint %q", text)
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Instead is what serves for packets without the hint.
func (k Kind) Instead() string { return facts[k].instead }

// Offer is a set of kinds, as netlink has it (enum netdev_xdp_rx_metadata).
type Offer uint64

// Has reports whether a kind is in the set.
func (o Offer) Has(k Kind) bool { return o&facts[k].offered != 0 }

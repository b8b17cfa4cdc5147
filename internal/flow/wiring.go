package flow

// Port is an interface by its number.
type Port struct {
	Netns   string // empty: the agent's own
	IfIndex uint32
}

// Wiring is how the interfaces of this host hang together: which of them pass one
// packet on to each other. It is not changed once made.
type Wiring struct {
	Peers  map[Port]Port   // the other end of a veth pair; a loopback is its own
	Uppers map[Port][]Port // what lies on an interface, at any height: bridge, bond, VLAN, tunnel
}

// Package l2 finds out which interface routes the frames that arrive at a port, and by which port and with which tag a packet
// leaves that is routed to an interface: VLAN interfaces and bridges are between the two. Input: what the kernel says of links,
// of VLANs of bridges and of the stations behind their ports. Output: tables for the programs of bpf/forward. What is not
// certain is in none of them. Package forward calls it.
package l2

// Tag is a VLAN tag of a frame; zero: none.
type Tag struct{ Proto, VID uint16 }

// MAC is an Ethernet address; zero: none.
type MAC [6]byte

// Link is what matters of an interface.
type Link struct {
	Index, Master uint32
	Name, Kind    string
	MAC           MAC
	MTU           uint32
	Up            bool
	Parent        uint32 // of a VLAN interface
	Tag           Tag    // likewise
	Maps          bool   // likewise: priorities of packets are in the tags
	Bridge        *Bridge
	Port          *BridgePort
}

// Bridge is what matters of one.
type Bridge struct {
	Filters bool   // VLANs (vlan_filtering)
	Proto   uint16 // of its tags
	Trees   bool   // ports pass VLANs or not by a spanning tree of several (mst_enabled)
}

// BridgePort is what matters of an interface that is a port of a bridge.
type BridgePort struct {
	Forwards bool // by the spanning tree
	Learns   bool // which stations are behind it
	Special  bool // a backup port or tunnels have a part in where frames go
}

// Member is how a bridge or a port of one belongs to a VLAN.
type Member struct {
	Primary  bool // untagged frames belong to it (PVID)
	Untagged bool // frames leave without a tag
	Passes   bool // by its state
}

// Station is somebody whom a bridge knows.
type Station struct {
	Bridge, Port uint32
	VID          uint16 // 0: the bridge does not filter
	MAC          MAC
}

// State is all of one network namespace.
type State struct {
	Links    map[uint32]*Link
	VLANs    map[uint32]map[uint16]Member // of bridges that filter, and of their ports
	Stations []Station
}

// Arrival is what a frame shows of where it belongs.
type Arrival struct {
	Port uint32
	Tag  Tag
}

// Upper is the interface that routes frames.
type Upper struct {
	Device uint32 // its index
	Scope  uint32 // where routes are looked up: its VRF, or itself
	MAC    MAC
	Bridge uint32 // between them; 0: none
	Member uint32 // the port of the bridge, which has to know the sender as there; 0: it learns none
	VID    uint16 // of stations of that bridge
}

// Lower is where packets leave.
type Lower struct {
	Port   uint32 // 0: the port of the bridge where the next hop is
	Bridge uint32
	VID    uint16 // of stations of that bridge
	Tag    Tag
	MTU    uint32 // of the port
}

// Place is a station of a bridge, in a VLAN if the bridge filters.
type Place struct {
	Bridge uint32
	VID    uint16
	MAC    MAC
}

// Behind is where a station is.
type Behind struct {
	Member uint32 // the port of the bridge
	Lower
}

// Table is what programs look up.
type Table struct {
	Arrivals map[Arrival]Upper
	Routes   map[uint32]Lower // by the interface that a route leads to
	Stations map[Place]Behind
}

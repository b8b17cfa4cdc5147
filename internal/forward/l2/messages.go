package l2

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of if_link.h, if_bridge.h and neighbour.h, where the library lacks them.
const (
	infoSlaveData  = 5
	brMultiBoolopt = 46
	optionMST      = 1 << 2 // BR_BOOLOPT_MST_ENABLE
	stateForwards  = 3      // BR_STATE_FORWARDING

	vlandbEntry      = 1 // BRIDGE_VLANDB_ENTRY
	vlandbEntryInfo  = 1
	vlandbEntryRange = 2
	vlandbEntryState = 3
	vlanPrimary      = 1 << 1 // BRIDGE_VLAN_INFO_PVID
	vlanUntagged     = 1 << 2

	neighFlagsExt = 15     // NDA_FLAGS_EXT
	neighLocked   = 1 << 1 // NTF_EXT_LOCKED
)

// each calls a function with each attribute.
func each(b []byte, what func(kind int, value []byte)) error {
	attrs, err := nl.ParseRouteAttr(b)
	for _, a := range attrs {
		what(int(a.Attr.Type&nl.NLA_TYPE_MASK), a.Value)
	}
	return err
}

// number is a value of one, two or four bytes, in the byte order of the host.
func number(b []byte) uint32 {
	switch {
	case len(b) >= 4:
		return binary.NativeEndian.Uint32(b)
	case len(b) >= 2:
		return uint32(binary.NativeEndian.Uint16(b))
	case len(b) == 1:
		return uint32(b[0])
	}
	return 0
}

func network(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// linkOf reads a message of type RTM_NEWLINK.
func linkOf(m []byte) (*Link, error) {
	if len(m) < unix.SizeofIfInfomsg {
		return nil, fmt.Errorf("a link of %d bytes", len(m))
	}
	l := &Link{Index: binary.NativeEndian.Uint32(m[4:]), Up: binary.NativeEndian.Uint32(m[8:])&unix.IFF_UP != 0}
	var data, slave, slaveKind []byte
	elsewhere := false
	err := each(m[unix.SizeofIfInfomsg:], func(kind int, v []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = unix.ByteSliceToString(v)
		case unix.IFLA_ADDRESS:
			if len(v) == len(l.MAC) {
				l.MAC = MAC(v)
			}
		case unix.IFLA_MTU:
			l.MTU = number(v)
		case unix.IFLA_LINK:
			l.Parent = number(v)
		case unix.IFLA_LINK_NETNSID:
			elsewhere = true
		case unix.IFLA_MASTER:
			l.Master = number(v)
		case unix.IFLA_LINKINFO:
			_ = each(v, func(kind int, v []byte) {
				switch kind {
				case unix.IFLA_INFO_KIND:
					l.Kind = unix.ByteSliceToString(v)
				case unix.IFLA_INFO_DATA:
					data = v
				case unix.IFLA_INFO_SLAVE_KIND:
					slaveKind = v
				case infoSlaveData:
					slave = v
				}
			})
		}
	})
	if l.Kind != "vlan" || elsewhere { // a veth has one, too
		l.Parent = 0
	}
	switch l.Kind {
	case "vlan":
		l.readVLAN(data)
	case "bridge":
		l.readBridge(data)
	}
	if unix.ByteSliceToString(slaveKind) == "bridge" {
		l.readPort(slave)
	}
	return l, err
}

func (l *Link) readVLAN(data []byte) {
	l.Tag.Proto = unix.ETH_P_8021Q
	_ = each(data, func(kind int, v []byte) {
		switch kind {
		case unix.IFLA_VLAN_ID:
			l.Tag.VID = uint16(number(v))
		case unix.IFLA_VLAN_PROTOCOL:
			l.Tag.Proto = network(v)
		case unix.IFLA_VLAN_EGRESS_QOS:
			l.Maps = len(v) > 0
		}
	})
}

func (l *Link) readBridge(data []byte) {
	l.Bridge = &Bridge{Proto: unix.ETH_P_8021Q}
	_ = each(data, func(kind int, v []byte) {
		switch kind {
		case nl.IFLA_BR_VLAN_FILTERING:
			l.Bridge.Filters = number(v) != 0
		case nl.IFLA_BR_VLAN_PROTOCOL:
			l.Bridge.Proto = network(v)
		case brMultiBoolopt:
			l.Bridge.Trees = number(v)&optionMST != 0
		}
	})
}

func (l *Link) readPort(data []byte) {
	l.Port = &BridgePort{}
	_ = each(data, func(kind int, v []byte) {
		switch kind {
		case nl.IFLA_BRPORT_STATE:
			l.Port.Forwards = number(v) == stateForwards
		case nl.IFLA_BRPORT_LEARNING, nl.IFLA_BRPORT_LOCKED: // a locked one takes frames of those only whom the bridge knows
			l.Port.Learns = l.Port.Learns || number(v) != 0
		case nl.IFLA_BRPORT_VLAN_TUNNEL, nl.IFLA_BRPORT_BACKUP_PORT:
			l.Port.Special = l.Port.Special || number(v) != 0
		}
	})
}

// vlansOf reads a message of type RTM_NEWVLAN: VLANs of an interface.
func vlansOf(m []byte, to map[uint32]map[uint16]Member) error {
	const header = 8 // struct br_vlan_msg
	if len(m) < header {
		return fmt.Errorf("VLANs of a bridge in %d bytes", len(m))
	}
	index := binary.NativeEndian.Uint32(m[4:])
	if to[index] == nil {
		to[index] = map[uint16]Member{}
	}
	return each(m[header:], func(kind int, v []byte) {
		if kind != vlandbEntry {
			return
		}
		var first, last uint16
		var one Member
		_ = each(v, func(kind int, v []byte) {
			switch {
			case kind == vlandbEntryInfo && len(v) >= 4: // struct bridge_vlan_info
				flags := number(v[:2])
				first = uint16(number(v[2:4]))
				last = max(last, first)
				one.Primary, one.Untagged = flags&vlanPrimary != 0, flags&vlanUntagged != 0
			case kind == vlandbEntryRange:
				last = uint16(number(v))
			case kind == vlandbEntryState:
				one.Passes = number(v) == stateForwards
			}
		})
		for vid := int(first); vid > 0 && vid <= int(last) && vid < 4095; vid++ {
			to[index][uint16(vid)] = one
		}
	})
}

// stationOf reads a message of type RTM_NEWNEIGH of a bridge; false: it is none that is behind a port.
func stationOf(m []byte) (s Station, ok bool, err error) {
	if len(m) < unix.SizeofNdMsg {
		return s, false, fmt.Errorf("a neighbour of %d bytes", len(m))
	}
	s.Port = binary.NativeEndian.Uint32(m[4:])
	state, flags := binary.NativeEndian.Uint16(m[8:]), m[10]
	locked := false
	err = each(m[unix.SizeofNdMsg:], func(kind int, v []byte) {
		switch kind {
		case unix.NDA_LLADDR:
			if len(v) == len(s.MAC) {
				s.MAC = MAC(v)
			}
		case unix.NDA_VLAN:
			s.VID = uint16(number(v))
		case unix.NDA_MASTER:
			s.Bridge = number(v)
		case neighFlagsExt:
			locked = number(v)&neighLocked != 0
		}
	})
	// What is permanent is an address of the bridge or of a port.
	ok = m[0] == unix.AF_BRIDGE && state&unix.NUD_PERMANENT == 0 && flags&unix.NTF_SELF == 0 && !locked && s.Bridge != 0 && s.Port != s.Bridge && s.MAC != MAC{}
	return s, ok, err
}

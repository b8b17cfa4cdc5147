package l2

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Read asks the kernel, in the network namespace of the calling thread. ports are indexes of interfaces: of bridges that none
// of them belongs to, nothing is asked.
func Read(ports map[uint32]bool) (*State, error) {
	s := &State{Links: map[uint32]*Link{}, VLANs: map[uint32]map[uint16]Member{}}
	if err := dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), func(m []byte) error {
		l, err := linkOf(m)
		if err == nil {
			s.Links[l.Index] = l
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	filters := false
	for _, b := range s.bridgesOf(ports) {
		filters = filters || b.Bridge.Filters
		if err := s.readStations(b.Index); err != nil {
			return nil, err
		}
	}
	if filters {
		if err := dump(unix.RTM_GETVLAN, unix.RTM_NEWVLAN, vlanMessage{}, func(m []byte) error { return vlansOf(m, s.VLANs) }); err != nil {
			return nil, fmt.Errorf("listing VLANs of bridges: %w", err)
		}
	}
	return s, nil
}

// bridgesOf are the bridges that ports belong to, or VLAN interfaces of ports.
func (s *State) bridgesOf(ports map[uint32]bool) map[uint32]*Link {
	found := map[uint32]*Link{}
	for _, l := range s.Links {
		if !ports[l.Index] && !ports[l.Parent] {
			continue
		}
		if b := s.Links[l.Master]; b != nil && b.Bridge != nil {
			found[b.Index] = b
		}
	}
	return found
}

// HasBridges reports whether bridges are above ports.
func (s *State) HasBridges(ports map[uint32]bool) bool { return len(s.bridgesOf(ports)) > 0 }

// LeaveBridges has what passes bridges be uncertain.
func (s *State) LeaveBridges() {
	for _, l := range s.Links {
		l.Bridge = nil
	}
}

// readStations adds those of one bridge.
func (s *State) readStations(bridge uint32) error {
	req := nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(bridge))
	err := dump(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, nl.NewIfInfomsg(unix.AF_BRIDGE), func(m []byte) error {
		one, ok, err := stationOf(m)
		if ok && one.Bridge == bridge {
			s.Stations = append(s.Stations, one)
		}
		return err
	}, req)
	if err != nil {
		return fmt.Errorf("listing stations of bridge %s: %w", s.Links[bridge].Name, err)
	}
	return nil
}

// vlanMessage is struct br_vlan_msg.
type vlanMessage struct{}

func (vlanMessage) Len() int { return 8 }

func (vlanMessage) Serialize() []byte {
	b := make([]byte, 8)
	b[0] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(b[4:], 0) // all
	return b
}

// dump calls a function with each message of an answer.
func dump(ask int, answer uint16, header nl.NetlinkRequestData, each func([]byte) error, more ...nl.NetlinkRequestData) error {
	req := nl.NewNetlinkRequest(ask, unix.NLM_F_DUMP)
	req.AddData(header)
	for _, d := range more {
		req.AddData(d)
	}
	var messages [][]byte
	var err error = nl.ErrDumpInterrupted
	for try := 0; try < 3 && errors.Is(err, nl.ErrDumpInterrupted); try++ {
		messages, err = req.Execute(unix.NETLINK_ROUTE, answer)
	}
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) { // what is missing is uncertain, until it is read again
		return err
	}
	for _, m := range messages {
		if err := each(m); err != nil {
			return err
		}
	}
	return nil
}

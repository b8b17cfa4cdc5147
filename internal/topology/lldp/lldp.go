// Package lldp reads what switches and hosts announce of themselves (IEEE 802.1AB). Input: frames of an AF_PACKET socket.
// Output: the neighbours whose announcements have not expired. It sends nothing. Caller: the agent, for its topology.
package lldp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// EtherType of LLDP.
const EtherType = 0x88cc

// Frame is one announcement.
type Frame struct {
	Chassis string // identity of the neighbour
	MAC     string // the same, if it is one
	Port    string // its end of the link: a name where there is one
	Name    string // of the neighbour
	Addr    netip.Addr
	TTL     time.Duration // 0: the neighbour leaves
}

// Types of TLVs.
const (
	endTLV         = 0
	chassisTLV     = 1
	portTLV        = 2
	ttlTLV         = 3
	portTextTLV    = 4
	systemNameTLV  = 5
	managementTLV  = 8
	headerLength   = 14
	maxTextLength  = 255
	subtypeMAC     = 4 // of a chassis
	subtypePortMAC = 3
	subtypeNetwork = 5 // of a chassis
	subtypePortIP  = 4
)

var errTruncated = errors.New("lldp: truncated")

// Parse reads an Ethernet frame without VLAN tags.
func Parse(frame []byte) (f Frame, err error) {
	if len(frame) < headerLength || binary.BigEndian.Uint16(frame[12:]) != EtherType {
		return f, errors.New("lldp: not a frame of LLDP")
	}
	rest := frame[headerLength:]
	for n := 0; ; n++ {
		if len(rest) < 2 {
			return f, errTruncated
		}
		head := binary.BigEndian.Uint16(rest)
		kind, length := int(head>>9), int(head&0x1ff)
		if len(rest) < 2+length {
			return f, errTruncated
		}
		value := rest[2 : 2+length]
		rest = rest[2+length:]
		if kind == endTLV {
			if n < 3 || length != 0 {
				return f, errors.New("lldp: it ends before its three first parts")
			}
			return f, nil
		}
		// The first three have a fixed order, and come once.
		if n < 3 && kind != n+1 || n >= 3 && kind <= ttlTLV {
			return f, fmt.Errorf("lldp: part %d is of type %d", n+1, kind)
		}
		if err := f.set(kind, value); err != nil {
			return f, err
		}
	}
}

func (f *Frame) set(kind int, value []byte) error {
	switch kind {
	case chassisTLV:
		if len(value) < 2 || len(value) > 1+maxTextLength {
			return errors.New("lldp: length of the chassis")
		}
		f.Chassis = identity(value, subtypeMAC, subtypeNetwork)
		if value[0] == subtypeMAC {
			f.MAC = f.Chassis
		}
	case portTLV:
		if len(value) < 2 || len(value) > 1+maxTextLength {
			return errors.New("lldp: length of the port")
		}
		f.Port = identity(value, subtypePortMAC, subtypePortIP)
	case ttlTLV:
		if len(value) < 2 {
			return errors.New("lldp: length of the time to live")
		}
		f.TTL = time.Duration(binary.BigEndian.Uint16(value)) * time.Second
	case portTextTLV:
		if text := printable(value); text != "" && strings.Contains(f.Port, ":") { // rather than a link layer address
			f.Port = text
		}
	case systemNameTLV:
		f.Name = printable(value)
	case managementTLV:
		if a := management(value); a.IsValid() && !f.Addr.IsValid() {
			f.Addr = a
		}
	}
	return nil
}

// identity is a chassis or a port in text.
func identity(value []byte, mac, network byte) string {
	switch body := value[1:]; {
	case value[0] == mac && len(body) == 6:
		return net.HardwareAddr(body).String()
	case value[0] == network && len(body) > 1:
		if a := address(body[0], body[1:]); a.IsValid() {
			return a.String()
		}
		return fmt.Sprintf("%x", body)
	case utf8.Valid(body):
		return printable(body)
	default:
		return fmt.Sprintf("%x", body)
	}
}

// management is the address of a management TLV: a length, a family, the address.
func management(value []byte) netip.Addr {
	if len(value) < 2 || int(value[0]) < 2 || len(value) < 1+int(value[0]) {
		return netip.Addr{}
	}
	return address(value[1], value[2:1+int(value[0])])
}

// address reads one of a family of IANA: 1 is IPv4, 2 IPv6.
func address(family byte, b []byte) netip.Addr {
	a, ok := netip.AddrFromSlice(b)
	if !ok || a.Is4() != (family == 1) || a.Is6() != (family == 2) {
		return netip.Addr{}
	}
	return a
}

// printable has no control characters: the text comes from the network, and is shown on terminals.
func printable(b []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(b)))
}

package packet

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/waymark-net/waymark/internal/flow"
)

// Case is a few frames and what a probe must have counted once it saw them, in
// order, on one interface at ingress. The parsers in C and Go agree on each.
type Case struct {
	Name    string
	Frames  []Frame
	Tunnels Tunnels // whose inner flows are asked for

	// Flows has interface 0, direction ingress, no times and no round trips.
	Flows []flow.Delta
	// Uncounted has what belongs to no flow, by reason. The exceptions are
	// fragment_unmatched and gso_inexact, which are counted in addition to the flow.
	Uncounted map[string]Amount
}

// Amount is packets, which are GSO segments, and bytes of their frames.
type Amount struct{ Packets, Bytes uint64 }

// Frame is what the kernel shows of a packet.
type Frame struct {
	Data []byte
	Tag  *Tag // the outermost VLAN tag, if not in Data ("accelerated")
	L3   bool // no link header: Data begins with the IP header
	GSO  GSO
}

// Tag is a VLAN tag that travels in the packet's metadata.
type Tag struct{ TPID, TCI uint16 }

// GSO says that the frame stands for several segments of at most Size bytes of
// payload; zero: it is one.
type GSO struct{ Segments, Size uint16 }

// Tunnels is a set of encapsulations.
type Tunnels uint8

// Has says whether t is asked for.
func (s Tunnels) Has(t flow.Tunnel) bool { return s&(1<<t) != 0 }

// AllTunnels asks for the inner flows of every encapsulation.
const AllTunnels Tunnels = 1<<flow.TunnelVXLAN | 1<<flow.TunnelGeneve | 1<<flow.TunnelGRE | 1<<flow.TunnelIPIP

// Why a packet belongs to no flow.
const (
	ReasonARP               = "arp"
	ReasonEtherType         = "ethertype"
	ReasonVLANDepth         = "vlan_depth"
	ReasonTruncated         = "truncated"
	ReasonMalformed         = "malformed"
	ReasonExtChain          = "ext_chain"
	ReasonFragmentUnmatched = "fragment_unmatched"
	ReasonGSOInexact        = "gso_inexact"
)

// want is one expected flow, to which methods add what is not the default.
type want struct{ flow.Delta }

// expect is a flow of one frame with TTL 64, whose lengths are set by bytes.
func expect(src, dst string, proto uint8, sport, dport uint16) want {
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	w := want{}
	w.Src, w.Dst = s.As16(), d.As16()
	w.IPv6 = s.Is6()
	w.Proto, w.SrcPort, w.DstPort = proto, sport, dport
	w.TTLMin, w.TTLMax = 64, 64
	w.Packets = 1
	return w
}

// bytes sets the length of the IP packets and of the part above the transport header.
func (w want) bytes(ip, payload uint64) want {
	w.Bytes, w.PayloadBytes = ip, payload
	return w
}

func (w want) with(f func(d *flow.Delta)) want {
	f(&w.Delta)
	return w
}

func (w want) flags(f uint16) want {
	w.TCPFlags, w.Opening = f, flow.OpeningOf(f) // of one packet
	return w
}

func (w want) vlan(outer, inner uint16) want { w.VLAN, w.InnerVLAN = outer, inner; return w }

func (w want) tunnel(t flow.Tunnel, vni uint32) want { w.Tunnel, w.VNI = t, vni; return w }

// of builds a case of one flow that all frames belong to.
func (w want) of(name string, frames ...Frame) Case {
	for _, f := range frames {
		w.Frames++
		w.FrameBytes += uint64(len(f.Data))
		w.WireBytes += f.wire()
	}
	return Case{Name: name, Frames: frames, Flows: []flow.Delta{w.Delta}}
}

// inside asks for inner flows.
func (c Case) inside(t Tunnels) Case {
	c.Tunnels = t
	return c
}

// also adds packets of the case that a reason counts in addition to their flow.
func (c Case) also(reason string, frames ...Frame) Case {
	c.Uncounted = map[string]Amount{reason: amount(frames)}
	return c
}

// uncounted is a case without a flow.
func uncounted(name, reason string, frames ...Frame) Case {
	return Case{Name: name, Frames: frames, Uncounted: map[string]Amount{reason: amount(frames)}}
}

func amount(frames []Frame) Amount {
	var a Amount
	for _, f := range frames {
		a.Packets += max(1, uint64(f.GSO.Segments))
		a.Bytes += uint64(len(f.Data))
	}
	return a
}

// wire is the length on the wire but for GSO, which the case sets itself.
func (f Frame) wire() uint64 {
	n := uint64(len(f.Data))
	if f.Tag != nil {
		n += 4
	}
	return n
}

// frame is the frame that b builds.
func frame(b Builder) Frame { return Frame{Data: b.Bytes()} }

// l3 is the packet that b builds on a device without link header.
func l3(b Builder) Frame { return Frame{Data: b.Bytes(), L3: true} }

func frames(data [][]byte) []Frame {
	var fs []Frame
	for _, d := range data {
		fs = append(fs, Frame{Data: d})
	}
	return fs
}

// Truncations cuts the frame of a case of one frame at every length and says
// what is to be made of it. It is empty for frames whose IP length means "what
// is present", since they stay right when cut.
func Truncations(c Case) []Case {
	if len(c.Frames) != 1 || c.Frames[0].GSO.Segments > 0 {
		return nil
	}
	f := c.Frames[0]
	link, fixed, total := f.shape()
	if fixed > 0 && total == 0 {
		return nil
	}
	var cuts []Case
	for n := range len(f.Data) {
		cut := f
		cut.Data = f.Data[:n:n]
		name := fmt.Sprintf("%s/cut at %d", c.Name, n)
		switch {
		case n < link+fixed:
			cuts = append(cuts, uncounted(name, ReasonTruncated, cut))
		case fixed == 0: // not IP: the EtherType decides alone
			t := uncounted(name, "", cut)
			for reason := range c.Uncounted {
				t.Uncounted = map[string]Amount{reason: amount(t.Frames)}
			}
			cuts = append(cuts, t)
		case n < link+total:
			cuts = append(cuts, uncounted(name, ReasonMalformed, cut))
		default: // only padding is cut off
			cuts = append(cuts, c.shortened(name, cut))
		}
		cuts[n].Tunnels = c.Tunnels
	}
	return cuts
}

// shortened is the case with another frame that differs in padding only.
func (c Case) shortened(name string, cut Frame) Case {
	less := uint64(len(c.Frames[0].Data) - len(cut.Data))
	s := Case{Name: name, Frames: []Frame{cut}, Uncounted: map[string]Amount{}}
	for _, d := range c.Flows {
		d.FrameBytes -= less
		d.WireBytes -= less
		s.Flows = append(s.Flows, d)
	}
	for reason, a := range c.Uncounted {
		a.Bytes -= less
		s.Uncounted[reason] = a
	}
	return s
}

// shape finds the lengths of the link header up to the second tag and of the
// fixed IP header, and the IP length as the header tells it. Without an IP
// header both are 0.
func (f Frame) shape() (link, fixed, total int) {
	var etherType uint16
	switch {
	case f.L3 && f.Data[0]>>4 == 6:
		etherType = TypeIPv6
	case f.L3: // whatever is not IPv6 is read as IPv4
		etherType = TypeIPv4
	case len(f.Data) < 14:
		return 14, 0, 0
	default:
		tags := 0
		if f.Tag != nil {
			tags = 1
		}
		link = 14
		for ; ; tags++ {
			etherType = binary.BigEndian.Uint16(f.Data[link-2:])
			tagged := etherType == TypeVLAN || etherType == TypeQinQ
			if !tagged || tags == 2 || len(f.Data) < link+4 {
				break
			}
			link += 4
		}
	}
	ip := f.Data[link:]
	switch {
	case etherType == TypeIPv4 && len(ip) >= 20:
		return link, 20, int(binary.BigEndian.Uint16(ip[2:]))
	case etherType == TypeIPv6 && len(ip) >= 40:
		if n := int(binary.BigEndian.Uint16(ip[4:])); n > 0 || ip[6] != 0 {
			return link, 40, 40 + n
		}
		return link, 40, 0
	case etherType == TypeIPv4:
		return link, 20, 20
	case etherType == TypeIPv6:
		return link, 40, 40
	default:
		return link, 0, 0
	}
}

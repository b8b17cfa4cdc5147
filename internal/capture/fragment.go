package capture

import "github.com/waymark-net/waymark/internal/flow"

// fragmentsMax bounds the memory for first fragments. Those of one packet
// follow each other within milliseconds, so a few thousand are plenty.
const fragmentsMax = 8192

// fragmentKey is what the fragments of a packet have in common (RFC 791, 3.2;
// RFC 8200, 4.5: an IPv6 id is unique without the protocol).
type fragmentKey struct {
	src, dst  [16]byte
	iface     flow.Iface
	id        uint32
	direction flow.Direction
	ipv6      bool
	proto     uint8
}

type fragmentPorts struct {
	src, dst uint16
	proto    uint8
}

// fragments gives later fragments the ports and protocol of their first.
type fragments struct {
	first fifo[fragmentKey, fragmentPorts]
}

func newFragments() fragments {
	return fragments{newFIFO[fragmentKey, fragmentPorts](fragmentsMax)}
}

// match remembers a first fragment, and completes a later one: false when its
// first was not seen.
func (f *fragments) match(p *parsed) bool {
	key := fragmentKey{
		src: p.Src, dst: p.Dst, iface: p.Iface, id: p.fragmentID,
		direction: p.Direction, ipv6: p.IPv6,
	}
	if !p.IPv6 {
		key.proto = p.fragmentProto
	}
	if p.fragment == fragmentFirst {
		f.first.put(key, fragmentPorts{src: p.SrcPort, dst: p.DstPort, proto: p.Proto})
		return true
	}
	ports, ok := f.first.get(key)
	if ok {
		p.SrcPort, p.DstPort, p.Proto = ports.src, ports.dst, ports.proto
	}
	return ok
}

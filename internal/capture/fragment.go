package capture

import (
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// fragmentLifetime is when, after its first fragment, a packet is given up, and
// its id may stand for another (Linux: ipfrag_time).
const fragmentLifetime = int64(30 * time.Second)

// fragmentsMax bounds the memory for first fragments. Those of one packet
// follow each other within milliseconds, so a few thousand are plenty.
const fragmentsMax = 8192

// fragmentKey is what the fragments of a packet have in common (RFC 791, 3.2;
// RFC 8200, 4.5: an IPv6 id is unique without the protocol).
type fragmentKey struct {
	src, dst        [16]byte
	iface           flow.Iface
	id, vni         uint32
	vlan, innerVLAN uint16
	direction       flow.Direction
	tunnel          flow.Tunnel
	ipv6            bool
	proto           uint8
}

type fragmentPorts struct {
	time     int64 // of the first fragment
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
// first was not seen, or long ago. now is in ns.
func (f *fragments) match(p *parsed, now int64) bool {
	key := fragmentKey{
		src: p.Src, dst: p.Dst, iface: p.Iface, id: p.fragmentID, vni: p.vni,
		vlan: p.VLAN, innerVLAN: p.InnerVLAN, direction: p.Direction, tunnel: p.Tunnel, ipv6: p.IPv6,
	}
	if !p.IPv6 {
		key.proto = p.fragmentProto
	}
	if p.fragment == fragmentFirst {
		f.first.put(key, fragmentPorts{time: now, src: p.SrcPort, dst: p.DstPort, proto: p.Proto})
		return true
	}
	ports, ok := f.first.get(key)
	if !ok || now-ports.time > fragmentLifetime {
		return false
	}
	p.SrcPort, p.DstPort, p.Proto = ports.src, ports.dst, ports.proto
	return true
}

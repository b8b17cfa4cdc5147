package bench

import (
	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/test/packet"
)

// kind is a sort of packet that vary() in bpf/test/vary.h makes flows of.
type kind struct {
	name    string
	frame   []byte
	address uint32 // offset of the last four bytes of the source address
	ports   uint32 // offset of both ports
}

const (
	payload    = 64 // bytes
	sourceIPv4 = 14 + 12
	sourceIPv6 = 14 + 8 + 12

	destinationIPv6 = 14 + 8 + 16
)

// kinds are what most traffic consists of.
func kinds() []kind {
	v4, v6 := packet.Eth().IPv4("10.0.0.1", "192.0.2.1"), packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	return []kind{
		{"IPv4/UDP", v4.UDP(0, 53).Payload(payload).Bytes(), sourceIPv4, 14 + 20},
		{"IPv4/TCP", v4.TCP(0, 443).Flags(packet.ACK).Payload(payload).Bytes(), sourceIPv4, 14 + 20},
		{"IPv6/UDP", v6.UDP(0, 53).Payload(payload).Bytes(), sourceIPv6, 14 + 40},
		{"IPv6/TCP", v6.TCP(0, 443).Flags(packet.ACK).Payload(payload).Bytes(), sourceIPv6, 14 + 40},
	}
}

// rareKinds take the long way through the parser. What is written again for each
// packet is part of the Ethernet addresses: all are of one flow.
func rareKinds() []kind {
	const ethernet = 4
	v4, v6 := packet.Eth().IPv4("10.0.0.1", "192.0.2.1"), packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	var out []kind
	for _, k := range []struct {
		name  string
		frame []byte
	}{
		{"one VLAN tag", packet.Eth().VLAN(5).IPv4("10.0.0.1", "192.0.2.1").UDP(1, 53).Payload(payload).Bytes()},
		{"three IPv6 extension headers", v6.HopByHop().Routing("2001:db8::3").DestOpts().UDP(1, 53).Payload(payload).Bytes()},
		{"ICMP echo", v4.ICMP(8, 0, 1, 1).Payload(payload).Bytes()},
		{"TCP SYN", v4.TCP(1, 443).Flags(packet.SYN).Bytes()},
		{"VXLAN", v4.UDP(1, 4789).VXLAN(7).
			Eth().IPv4("10.1.0.1", "10.1.0.2").UDP(1000, 53).Payload(payload).Bytes()},
		{"ARP (in no flow)", packet.Eth().ARP("10.0.0.1", "10.0.0.2").Bytes()},
	} {
		out = append(out, kind{k.name, k.frame, ethernet, ethernet + 4})
	}
	return out
}

// rareKind is one of rareKinds.
func rareKind(name string) kind {
	for _, k := range rareKinds() {
		if k.name == name {
			return k
		}
	}
	panic("bench: no packet " + name)
}

// adapt makes a collection send k as packets of a number of flows.
func (k *kind) adapt(flows int) func(*ebpf.CollectionSpec) error {
	return func(spec *ebpf.CollectionSpec) error {
		if err := program.Vary(spec, k.frame, k.address, k.ports, uint64(flows)); err != nil {
			return err
		}
		for _, name := range []string{"reference_hash", "reference_lru", "reference_percpu"} {
			if m := spec.Maps[name]; m != nil {
				m.MaxEntries = uint32(max(2*flows, 1<<16))
			}
		}
		return nil
	}
}

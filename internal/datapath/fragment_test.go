package datapath

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// When a packet is given up, later fragments don't get the ports of its first.
func TestFragmentsAreGivenUp(t *testing.T) {
	d := load(t, Config{MaxEntries: 1024})
	coll, err := d.Alongside(Ingress.loadChecked, func(spec *ebpf.CollectionSpec) error {
		return spec.Variables["cfg_fragment_lifetime"].Set(uint64(0)) // a tick of the clock
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer coll.Close()
	ip := packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	first := packet.Frame{Data: ip.Fragment(0, true, 7).UDP(1, 2).Bytes()}
	later := packet.Frame{Data: ip.Fragment(8, false, 7).NextHeader(packet.ProtoUDP).Payload(1).Bytes()}
	var reasons reasonCounter
	run(t, coll.Programs["waymark_ingress"], first)
	await.True(t, "a fragment without a first", func() bool {
		run(t, coll.Programs["waymark_ingress"], later)
		return reasons.since(t, d)[packet.ReasonFragmentUnmatched].Packets > 0
	})
}

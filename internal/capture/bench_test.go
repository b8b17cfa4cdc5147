package capture

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/waymark-net/waymark/test/packet"
)

var benchPackets = map[string]packet.Builder{
	"udp4":           packet.Eth().IPv4("192.0.2.1", "198.51.100.2").UDP(1000, 2000).Payload(64),
	"tcp6":           packet.Eth().IPv6("2001:db8::1", "2001:db8::2").TCP(1000, 2000).Payload(64),
	"tcp6 vlan opts": packet.Eth().VLAN(5).IPv6("2001:db8::1", "2001:db8::2").HopByHop().DestOpts().TCP(1000, 2000).Payload(64),
	"vxlan tcp6": packet.Eth().IPv4("192.0.2.1", "198.51.100.2").UDP(1000, packet.PortVXLAN).VXLAN(7).
		Eth().IPv6("2001:db8::1", "2001:db8::2").TCP(1000, 2000).Payload(64),
}

func BenchmarkDissect(b *testing.B) {
	for name, p := range benchPackets {
		b.Run(name, func(b *testing.B) {
			data := p.Bytes()
			f := frame{data: data, length: len(data)}
			var got parsed
			b.ReportAllocs()
			for b.Loop() {
				if why := got.dissect(&f, allTunnels); why != counted {
					b.Fatal(why)
				}
			}
		})
	}
}

// BenchmarkCount is all that is done for a packet of a ring, once its flow is known.
func BenchmarkCount(b *testing.B) {
	for _, flows := range []uint32{1, 1000, 512 << 10} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			data := packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(1000, 2000).Payload(64).Bytes()
			f := frame{data: data, length: len(data)}
			m := newMeter(Default(), rand.Uint32)
			add := func(i uint32) {
				binary.BigEndian.PutUint32(data[14+20:], i)
				m.add(&f, place{}, int64(i))
			}
			for i := range flows {
				add(i)
			}
			b.ReportAllocs()
			for i := uint32(0); b.Loop(); i++ {
				add(i * 2654435761 % flows)
			}
			if m.table.used != int(flows) {
				b.Fatalf("%d flows counted, want %d", m.table.used, flows)
			}
		})
	}
}

package offline_test

import (
	"testing"

	"github.com/waymark-net/waymark/internal/capfile"

	"github.com/waymark-net/waymark/internal/inband/offline"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

func TestWhoAsks(t *testing.T) {
	const syn, ack = 0x02, 0x10
	a, b := "2001:db8::a", "2001:db8::b"
	nothing, something := pdm.Option{PSNTP: 1}, pdm.Option{PSNTP: 5, PSNLR: 1, DeltaTLR: 1, ScaleDTLR: 20}
	ip := func(src, dst string) packet.Builder { return packet.Eth().IPv6(src, dst) }
	type step struct {
		b packet.Builder
		o pdm.Option
	}
	for _, c := range []struct {
		name   string
		steps  []step
		client string
	}{
		{"handshake", []step{{ip(a, b).TCP(80, 8080).Flags(syn), nothing}}, a},
		{"answer of a handshake", []step{{ip(a, b).TCP(8080, 80).Flags(syn | ack), nothing}}, b},
		{"handshake against ports and numbers", []step{{ip(a, b).TCP(8080, 80).Flags(ack), nothing}, {ip(b, a).TCP(80, 8080).Flags(syn), something}}, b},
		{"who had received nothing", []step{{ip(a, b).UDP(53, 40000), nothing}, {ip(b, a).UDP(40000, 53), something}}, a},
		{"who had received nothing, seen second", []step{{ip(a, b).UDP(40000, 53), something}, {ip(b, a).UDP(53, 40000), nothing}}, b},
		{"one side marks: ports", []step{{ip(a, b).UDP(53, 40000), nothing}}, b},
		{"begun later: ports", []step{{ip(a, b).UDP(53, 40000), something}, {ip(b, a).UDP(40000, 53), something}}, b},
		{"begun later, equal ports: who sent first", []step{{ip(a, b).UDP(500, 500), something}}, a},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := offline.NewTable()
			for _, s := range c.steps {
				frame := s.b.Bytes()
				pkt, err := pdm.Insert(frame[14:], s.o)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range decodeAll(t, capfile.LinkIPv6, pkt) {
					table.Add(&p)
				}
			}
			all := table.Conversations()
			if len(all) != 1 {
				t.Fatalf("%d conversations", len(all))
			}
			f := all[0].Flow()
			if f.Src.Addr().String() != c.client {
				t.Errorf("client %v, want %s", f.Src, c.client)
			}
			sent := uint64(0)
			for _, s := range c.steps {
				if p := decodeAll(t, capfile.LinkEthernet, s.b.Bytes()); p[0].Src == f.Src {
					sent++
				}
			}
			if got := all[0].Client().Packets; got != sent {
				t.Errorf("the client sent %d, want %d", got, sent)
			}
			if got := all[0].Client().Packets + all[0].Server().Packets; got != uint64(len(c.steps)) {
				t.Errorf("%d packets, want %d", got, len(c.steps))
			}
		})
	}
}

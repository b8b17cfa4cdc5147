package ipv6_test

import (
	"errors"
	"fmt"

	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// request is a UDP packet with a Hop-by-Hop Options header, which has a Router Alert.
func request() []byte {
	return packet.IPv6("2001:db8::1", "2001:db8::2").HopByHop(packet.Option{Type: 5, Data: []byte{0, 0}}).
		UDP(40000, 53).Payload(3).Bytes()
}

func ExampleWalk() {
	chain, err := ipv6.Walk(request())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, h := range chain.Headers() {
		fmt.Printf("header %d at %d: %d bytes\n", h.Proto, h.At, h.Size)
	}
	fmt.Printf("protocol %d at %d\n", chain.Proto, chain.Upper)
	// Output:
	// header 0 at 40: 8 bytes
	// protocol 17 at 48
}

func ExampleOptions() {
	for o, err := range ipv6.Options(request()[ipv6.HeaderSize:]) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("option %d: % x\n", o.Type, o.Data)
	}
	// Output:
	// option 5: 00 00
	// option 1:
}

// A Jumbo Payload option begins at 4n+2 (RFC 2675): it is joined to the Router Alert,
// behind padding.
func ExampleInsert() {
	pkt := request()
	align := ipv6.Align{X: 4, Y: 2}
	out, err := ipv6.Insert(pkt, ipv6.HopByHop, ipv6.TLV{Type: 0xC2, Data: make([]byte, 4), Align: align})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("% x\n", out[40:56])
	back, err := ipv6.Remove(out, 50, align)
	fmt.Println(string(back) == string(pkt), err)
	_, err = ipv6.Remove(pkt, 50, align)
	fmt.Println(errors.Is(err, ipv6.ErrNoOption), err)
	// Output:
	// 11 01 05 02 00 00 01 00 01 00 c2 04 00 00 00 00
	// true <nil>
	// true ipv6: no option at this offset, at byte 50
}

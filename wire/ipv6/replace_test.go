package ipv6_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// checkReplace holds Replace to its contract: an error, or a packet in which one option
// has other data and every other one its bytes and its alignment.
func checkReplace(t failer, pkt []byte, at int, data []byte) {
	out, err := edited(t, pkt, func() ([]byte, error) { return ipv6.Replace(pkt, at, data) })
	if err != nil {
		return
	}
	was, is := others(t, pkt), others(t, out)
	if len(was) != len(is) {
		t.Fatalf("%d options became %d\n  in %x\n out %x", len(was), len(is), pkt, out)
	}
	for i, o := range is {
		switch {
		case was[i].at == at:
			if o.at != at || o.Type != was[i].Type || !bytes.Equal(o.Data, data) {
				t.Fatalf("%+v became %+v, want %x", was[i], o, data)
			}
		case o.Type != was[i].Type || !bytes.Equal(o.Data, was[i].Data) || (o.at-was[i].at)%8 != 0:
			t.Fatalf("%+v became %+v", was[i], o)
		}
	}
	a, _ := ipv6.Walk(pkt)
	b, _ := ipv6.Walk(out)
	if a.Proto != b.Proto || !bytes.Equal(pkt[a.Upper:], out[b.Upper:]) || b.End-a.End != len(out)-len(pkt) {
		t.Fatalf("%+v became %+v", a, b)
	}
}

// otherOption is an option and where in the packet it is.
type otherOption struct {
	ipv6.Option
	at int
}

// others are the options of a packet but padding.
func others(t failer, pkt []byte) (all []otherOption) {
	c, err := ipv6.Walk(pkt)
	if err != nil {
		t.Fatalf("%x: %v", pkt, err)
	}
	for _, h := range c.Headers() {
		if h.Proto != ipv6.HopByHop && h.Proto != ipv6.Destination {
			continue
		}
		for o, err := range ipv6.Options(pkt[h.At:]) {
			if err != nil {
				t.Fatalf("%x: %v", pkt, err)
			}
			if !o.IsPadding() {
				all = append(all, otherOption{o, h.At + o.At})
			}
		}
	}
	return all
}

func TestReplace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pkt := packets().Draw(t, "packet")
		all := others(t, pkt)
		if len(all) == 0 {
			return
		}
		at := rapid.SampledFrom(all).Draw(t, "option").at
		checkReplace(t, pkt, at, rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "data"))
	})
}

func TestReplacePlaces(t *testing.T) {
	hop := func(options ...packet.Option) []byte {
		return packet.IPv6("2001:db8::1", "2001:db8::2").HopByHop(options...).UDP(1, 2).Bytes()
	}
	o := func(n int) packet.Option { return packet.Option{Type: 0x1E, Data: make([]byte, n)} }
	long := make([]packet.Option, 8)
	for i := range long {
		long[i] = o(253)
	}
	for _, c := range []struct {
		name string
		pkt  []byte
		n    int // of the first option's data afterwards
		want []byte
		err  error
	}{
		{"into padding", hop(o(2)), 4, hop(o(4)), nil},
		{"padding returns", hop(o(4)), 2, hop(o(2)), nil},
		{"header grows", hop(o(4)), 6, hop(o(6)), nil},
		{"header shrinks", hop(o(12)), 4, hop(o(4)), nil},
		{"same length", hop(o(3)), 3, hop(o(3)), nil},
		{"before another", hop(o(4), o(4)), 6, hop(o(6), packet.Option{Type: ipv6.PadN, Data: make([]byte, 4)}, o(4)), nil},
		{"256 bytes", hop(o(4)), 256, nil, ipv6.ErrNoSpace},
		{"header full", hop(long...), 255, nil, ipv6.ErrNoSpace}, // the others keep their alignment
		{"no options header", packet.IPv6("2001:db8::1", "2001:db8::2").UDP(1, 2).Bytes(), 4, nil, ipv6.ErrNoOption},
	} {
		out, err := ipv6.Replace(c.pkt, 42, make([]byte, c.n))
		if !errors.Is(err, c.err) || !bytes.Equal(out, c.want) {
			t.Errorf("%s: %v, want %v\n got %x\nwant %x", c.name, err, c.err, out, c.want)
		}
	}
	if _, err := ipv6.Replace(hop(o(2)), 46, nil); !errors.Is(err, ipv6.ErrNoOption) {
		t.Errorf("padding was replaced: %v", err)
	}
	if _, err := ipv6.Replace(hop(o(2)), 43, nil); !errors.Is(err, ipv6.ErrNoOption) {
		t.Errorf("the inside of an option was replaced: %v", err)
	}
}

func FuzzReplace(f *testing.F) {
	f.Add(request(), 42, []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, pkt []byte, at int, data []byte) {
		if _, err := ipv6.Walk(pkt); err == nil {
			checkReplace(t, pkt, at, data)
		}
	})
}

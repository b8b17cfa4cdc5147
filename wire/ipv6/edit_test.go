package ipv6_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/test/tlv"
	"github.com/waymark-net/waymark/wire/ipv6"
)

type failer interface{ Fatalf(string, ...any) }

// inserted finds the option that is in out and not in pkt: the last of the header
// that Insert writes to.
func inserted(t failer, out []byte, proto uint8) (h ipv6.Header, o ipv6.Option) {
	c, err := ipv6.Walk(out)
	if err != nil {
		t.Fatalf("%x: %v", out, err)
	}
	for _, x := range c.Headers() {
		if x.Proto == proto {
			h = x
		}
		if x.Proto == ipv6.Mobility || x.Proto == ipv6.HIP || x.Proto == ipv6.Shim6 {
			break
		}
	}
	for x, err := range ipv6.Options(out[h.At:]) {
		if err != nil {
			t.Fatalf("%x: %v", out, err)
		}
		if !x.IsPadding() {
			o = x
		}
	}
	return h, o
}

// edited is what an edit makes of a packet, which it may not change: another packet, or an error and none.
func edited(t failer, pkt []byte, edit func() ([]byte, error)) ([]byte, error) {
	before := bytes.Clone(pkt)
	out, err := edit()
	if !bytes.Equal(pkt, before) {
		t.Fatalf("the input was changed")
	}
	if err != nil && out != nil {
		t.Fatalf("a packet in addition to the error %v", err)
	}
	return out, err
}

// checkInsert holds Insert to its contract: an error, or a packet with the option
// where its alignment requires it, from which Remove makes the packet it was.
func checkInsert(t failer, pkt []byte, proto uint8, o ipv6.TLV) {
	out, err := edited(t, pkt, func() ([]byte, error) { return ipv6.Insert(pkt, proto, o) })
	if err != nil {
		return
	}
	h, got := inserted(t, out, proto)
	if got.Type != o.Type || !bytes.Equal(got.Data, o.Data) {
		t.Fatalf("%x\ninserted %+v, found %+v\n%x", pkt, o, got, out)
	}
	if x := max(o.Align.X, 1); got.At%x != o.Align.Y {
		t.Fatalf("%+v is at %d", o, got.At)
	}
	was, _ := ipv6.Walk(pkt)
	is, _ := ipv6.Walk(out)
	if is.Proto != was.Proto || !bytes.Equal(out[is.Upper:], pkt[was.Upper:]) || (is.Upper-was.Upper)%8 != 0 {
		t.Fatalf("%+v became %+v", was, is)
	}
	if n := int(binary.BigEndian.Uint16(out[4:])); n-int(binary.BigEndian.Uint16(pkt[4:])) != len(out)-len(pkt) {
		t.Fatalf("payload length %d of a packet of %d bytes", n, len(out))
	}
	back, err := ipv6.Remove(out, h.At+got.At, o.Align)
	if err != nil {
		t.Fatalf("%x: remove: %v", out, err)
	}
	// Only what had to be replaced, and a header of nothing but padding, are not as before.
	if !bytes.Equal(back, pkt) && !repadded(pkt, proto, o) {
		t.Fatalf("\n  in %x\nwith %x\n out %x", pkt, out, back)
	}
	c, err := ipv6.Walk(back)
	if err != nil || c.Proto != was.Proto || !bytes.Equal(back[c.Upper:], pkt[was.Upper:]) {
		t.Fatalf("%x: %+v, %v", back, c, err)
	}
}

// repadded reports whether Insert finds a header there that ends with padding.
func repadded(pkt []byte, proto uint8, o ipv6.TLV) bool {
	c, err := ipv6.Walk(pkt)
	if err != nil || o.Align.X <= 1 {
		return false
	}
	for _, h := range c.Headers() {
		var last ipv6.Option
		for last = range ipv6.Options(pkt[h.At:]) {
			continue
		}
		if h.Proto == proto && last.IsPadding() {
			return true
		}
	}
	return false
}

func TestInsertRemove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		proto := rapid.SampledFrom([]uint8{ipv6.HopByHop, ipv6.Destination}).Draw(t, "proto")
		checkInsert(t, packets().Draw(t, "packet"), proto, tlvs().Draw(t, "option"))
	})
}

// Any option of a header can be removed, and all others stay, in their order and
// with their alignment.
func TestRemoveAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pkt := packets().Draw(t, "packet")
		c, err := ipv6.Walk(pkt)
		if err != nil {
			t.Fatalf("%v", err)
		}
		all, _, err := tlv.Of(pkt)
		if err != nil {
			t.Fatalf("%x: %v", pkt, err)
		}
		for i, o := range all {
			out, err := ipv6.Remove(pkt, o.At, ipv6.Align{})
			if err != nil {
				if c.Editable(pkt) == nil {
					t.Fatalf("%x: %v", pkt, err)
				}
				continue
			}
			left, padding, err := tlv.Of(out)
			if err != nil || len(left) != len(all)-1 || padding > 7 {
				t.Fatalf("%x\nbecame %x: %d options, %d bytes of padding in a row, %v", pkt, out, len(left), padding, err)
			}
			for j, l := range left {
				was := all[j]
				if j >= i {
					was = all[j+1]
				}
				if l.Type != was.Type || (l.At-was.At)%8 != 0 {
					t.Fatalf("%x\nbecame %x: %v is at %v", pkt, out, was, l)
				}
			}
		}
	})
}

func TestInsertPlaces(t *testing.T) {
	base := packet.IPv6("2001:db8::1", "2001:db8::2")
	o := packet.Option{Type: 0x1e, Data: []byte{1, 2, 3, 4}}
	tlv := ipv6.TLV{Type: o.Type, Data: o.Data}
	for _, c := range []struct {
		name     string
		proto    uint8
		in, want packet.Builder
	}{
		{"new hop-by-hop", ipv6.HopByHop, base.UDP(1, 2), base.HopByHop(o).UDP(1, 2)},
		{"hop-by-hop before others", ipv6.HopByHop, base.Routing("::1").UDP(1, 2), base.HopByHop(o).Routing("::1").UDP(1, 2)},
		{"into the hop-by-hop header", ipv6.HopByHop, base.HopByHop(o).DestOpts(o).UDP(1, 2), base.HopByHop(o, o, packet.Option{Type: 1, Data: []byte{}}).DestOpts(o).UDP(1, 2)},
		{"destination behind routing", ipv6.Destination, base.DestOpts(o).Routing("::1").UDP(1, 2), base.DestOpts(o).Routing("::1").DestOpts(o).UDP(1, 2)},
		{"before mobility", ipv6.Destination, base.HopByHop(o).Mobility(), base.HopByHop(o).DestOpts(o).Mobility()},
		{"before shim6", ipv6.Destination, base.Shim6(1).UDP(1, 2), base.DestOpts(o).Shim6(1).UDP(1, 2)},
	} {
		got, err := ipv6.Insert(c.in.Bytes(), c.proto, tlv)
		if want := c.want.Bytes(); err != nil || !bytes.Equal(got[8:], want[8:]) {
			t.Errorf("%s: %v\n got %x\nwant %x", c.name, err, got, want)
		}
	}
}

func TestInsertLimits(t *testing.T) {
	base := packet.IPv6("2001:db8::1", "2001:db8::2")
	eight := make([]packet.Option, ipv6.MaxReceiverOptions)
	for i := range eight {
		eight[i] = packet.Option{Type: 0x1e}
	}
	long := make([]packet.Option, 7)
	for i := range long {
		long[i] = packet.Option{Type: 0x1e, Data: make([]byte, 255)}
	}
	long[0].Type = ipv6.PadN             // that leaves an option for a receiver
	fill := func(n int) packet.Builder { // a Destination Options header of n bytes
		return base.DestOpts(append(long, packet.Option{Type: 0x1e, Data: make([]byte, n-2-7*257-2)})...).UDP(1, 2)
	}
	nine := base
	for range ipv6.MaxHeaders / 2 {
		nine = nine.DestOpts().Routing("::1")
	}
	jumbo := base.UDP(1, 2).Bytes()
	jumbo[4], jumbo[5] = 0, 0
	one := ipv6.TLV{Type: 0x1e, Data: make([]byte, 4)}
	for _, c := range []struct {
		name string
		pkt  []byte
		o    ipv6.TLV
		want error
	}{
		{"255 units and one more fit", fill(ipv6.MaxExtensionSize - 8).Bytes(), one, nil},
		{"header full", fill(ipv6.MaxExtensionSize).Bytes(), one, ipv6.ErrNoSpace},
		{"header nearly full", fill(ipv6.MaxExtensionSize - 8).Bytes(), ipv6.TLV{Type: 0x1e, Data: make([]byte, 7)}, ipv6.ErrNoSpace},
		{"as many options as a receiver takes", base.DestOpts(eight...).UDP(1, 2).Bytes(), one, ipv6.ErrNoSpace},
		{"data of 256 bytes", base.UDP(1, 2).Bytes(), ipv6.TLV{Type: 0x1e, Data: make([]byte, 256)}, ipv6.ErrNoSpace},
		{"as many headers as are walked", nine.UDP(1, 2).Bytes(), one, ipv6.ErrTooComplex},
		{"payload of 65535 bytes", base.UDP(1, 2).Payload(65535 - 8).Bytes(), one, ipv6.ErrTooLong},
		{"fragment", base.Fragment(0, true, 1).UDP(1, 2).Bytes(), one, ipv6.ErrFragment},
		{"later fragment", base.Fragment(8, false, 1).Payload(8).Bytes(), one, ipv6.ErrFragment},
		{"AH", base.AH(1, 1, 12).UDP(1, 2).Bytes(), one, ipv6.ErrAuthenticated},
		{"jumbogram", jumbo, one, ipv6.ErrJumbogram},
		{"truncated", base.UDP(1, 2).Bytes()[:47], one, ipv6.ErrTruncated},
	} {
		if out, err := ipv6.Insert(c.pkt, ipv6.Destination, c.o); !errors.Is(err, c.want) || (err == nil) != (out != nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// A run of padding that receivers would drop is replaced.
func TestInsertReplacesPadding(t *testing.T) {
	pkt := packet.IPv6("2001:db8::1", "2001:db8::2").HopByHop(packet.Option{Type: 1, Data: make([]byte, 4)}).UDP(1, 2).Bytes()
	out, err := ipv6.Insert(pkt, ipv6.HopByHop, ipv6.TLV{Type: 0x1e, Data: make([]byte, 4), Align: ipv6.Align{X: 4, Y: 2}})
	want := []byte{17, 0, 0x1e, 4, 0, 0, 0, 0}
	if err != nil || len(out) != len(pkt) || !bytes.Equal(out[40:48], want) {
		t.Errorf("%x, %v", out, err)
	}
}

func FuzzInsert(f *testing.F) {
	for seed := range 20 {
		o := tlvs().Example(seed)
		f.Add(packets().Example(seed), seed%2 == 0, o.Type, o.Data, uint8(o.Align.X), uint8(o.Align.Y))
	}
	f.Fuzz(func(t *testing.T, pkt []byte, hopByHop bool, kind uint8, data []byte, x, y uint8) {
		proto := uint8(ipv6.Destination)
		if hopByHop {
			proto = ipv6.HopByHop
		}
		x = 1 << (x % 4)
		checkInsert(t, pkt, proto, ipv6.TLV{Type: max(kind, 2), Data: data, Align: ipv6.Align{X: int(x), Y: int(y % x)}})
	})
}

func FuzzRemove(f *testing.F) {
	for seed := range 20 {
		f.Add(packets().Example(seed), 42)
	}
	f.Fuzz(func(t *testing.T, pkt []byte, at int) {
		before := bytes.Clone(pkt)
		out, err := ipv6.Remove(pkt, at, ipv6.Align{})
		if !bytes.Equal(pkt, before) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			return
		}
		if _, err := ipv6.Walk(out); err != nil {
			t.Fatalf("%x\nbecame %x: %v", pkt, out, err)
		}
	})
}

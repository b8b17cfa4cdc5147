package pdm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

func TestInsert(t *testing.T) {
	marked := dest(mark(sample), padN(2))
	block := append(mark(sample), 1, 2, 0, 0)
	for _, c := range []struct {
		name     string
		in, want []byte
	}{
		{"bare", packet(udp()), packet(marked, udp())},
		{"echo request", packet(icmp(128)), packet(marked, icmp(128))},
		{"behind hop-by-hop", packet(hopByHop(), udp()), packet(hopByHop(), marked, udp())},
		{"behind routing", packet(dest(padN(6)), routing(), udp()), packet(dest(padN(6)), routing(), marked, udp())},
		{"into a header of padding", packet(dest(padN(6)), udp()), packet(dest(padN(6), block), udp())},
		{"into a header with an option", packet(dest(tlv(2), padN(2)), udp()), packet(dest(tlv(2), padN(2), block), udp())},
		{"into the second of two", packet(dest(tlv(4)), routing(), dest(tlv(4)), udp()), packet(dest(tlv(4)), routing(), dest(tlv(4), block), udp())},
		{"before a tunnelled packet", packet(header{41, packet(marked, udp())}), packet(marked, header{41, packet(marked, udp())})},
		{"no next header", packet(dest(padN(6)), header{59, nil}), packet(dest(padN(6), block), header{59, nil})},
		{"seven options", packet(dest(sevenOptions()...), udp()), packet(dest(append(sevenOptions(), block)...), udp())},
	} {
		t.Run(c.name, func(t *testing.T) {
			trailer := []byte{0xEE, 0xEE}
			in := append(bytes.Clone(c.in), trailer...)
			want := append(bytes.Clone(c.want), trailer...)
			before := bytes.Clone(in)
			out, err := pdm.Insert(in, sample)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out, want) {
				t.Errorf("\n got %x\nwant %x", out, want)
			}
			if !bytes.Equal(in, before) {
				t.Error("the input was changed")
			}
			back, o, err := pdm.Remove(out)
			if err != nil || o != sample || !bytes.Equal(back, in) {
				t.Errorf("removed again: %x, %v, %v", back, o, err)
			}
		})
	}
}

// sevenOptions leave room for one more at a Linux receiver.
func sevenOptions() (o [][]byte) {
	for range 7 {
		o = append(o, tlv(0))
	}
	return o
}

func TestInsertRefuses(t *testing.T) {
	marked := dest(mark(sample), padN(2))
	v2 := dest(append([]byte{0x0F, 0x12}, make([]byte, 18)...), padN(2))
	long := packet(header{17, make([]byte, 65535-15)})
	jumbo := packet(hopByHop(), udp())
	binary.BigEndian.PutUint16(jumbo[4:], 0)
	full := dest(padN(257), padN(257), padN(257), padN(257), padN(257), padN(257), padN(257), tlv(245))
	var eight []header
	for range pdm.MaxHeaders / 2 {
		eight = append(eight, dest(padN(6)), routing())
	}
	eightOptions := append(sevenOptions(), tlv(6))
	for _, c := range []struct {
		name string
		pkt  []byte
		want error
	}{
		{"marked", packet(marked, udp()), pdm.ErrMarked},
		{"marked before routing", packet(marked, routing(), udp()), pdm.ErrMarked},
		{"PDMv2", packet(v2, udp()), pdm.ErrVersion2},
		{"ESP", packet(esp()), pdm.ErrEncrypted},
		{"AH", packet(auth(), udp()), ipv6.ErrAuthenticated},
		{"first fragment", packet(fragment(0), udp()), ipv6.ErrFragment},
		{"later fragment", packet(fragment(5), udp()), ipv6.ErrFragment},
		{"MLD query", packet(icmp(130)), pdm.ErrNeighbor},
		{"neighbor solicitation", packet(icmp(135)), pdm.ErrNeighbor},
		{"redirect", packet(icmp(137)), pdm.ErrNeighbor},
		{"MLDv2 report behind hop-by-hop", packet(hopByHop(), icmp(143)), pdm.ErrNeighbor},
		{"ICMPv6 without a type", packet(dest(padN(6)), header{58, nil}), ipv6.ErrTruncated},
		{"jumbogram", jumbo, ipv6.ErrJumbogram},
		{"cut short", packet(udp())[:47], ipv6.ErrTruncated},
		{"too long", long, ipv6.ErrTooLong},
		{"header full", packet(full, udp()), ipv6.ErrNoSpace},
		{"as many options as a receiver takes", packet(dest(eightOptions...), udp()), ipv6.ErrNoSpace},
		{"as many paddings as are walked", packet(dest(append(slices.Repeat([][]byte{padN(1)}, 30), padN(8))...), udp()), ipv6.ErrNoSpace},
		{"as many headers as are walked", packet(append(eight, udp())...), ipv6.ErrTooComplex},
		{"not IPv6", make([]byte, 60), ipv6.ErrNotIPv6},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := pdm.Insert(c.pkt, sample)
			if !errors.Is(err, c.want) || out != nil {
				t.Errorf("%x, %v; want %v", out, err, c.want)
			}
		})
	}
}

// What others marked is removed so that the rest of the header keeps its
// alignment and no run of padding is longer than seven bytes.
func TestRemove(t *testing.T) {
	for _, c := range []struct {
		name     string
		in, want []byte
	}{
		{"whole header", packet(hopByHop(), dest(mark(sample), padN(2)), udp()), packet(hopByHop(), udp())},
		{"whole header, Pad1 before", packet(dest(padN(1), padN(1), mark(sample)), udp()), packet(udp())},
		{"whole header, too much padding", packet(dest(mark(sample), padN(5), padN(5)), udp()), packet(udp())},
		{"option before", packet(dest(tlv(4), mark(sample), padN(4)), udp()), packet(dest(tlv(4)), udp())},
		{"option before, no padding", packet(dest(tlv(0), mark(sample)), udp()), packet(dest(tlv(0), padN(4)), udp())},
		{"option behind", packet(dest(mark(sample), tlv(0)), udp()), packet(dest(padN(4), tlv(0)), udp())},
		{"options around", packet(dest(tlv(6), mark(sample), padN(2), tlv(6)), udp()), packet(dest(tlv(6), padN(6), tlv(6)), udp())},
		{"padding before joins what is left", packet(dest(tlv(2), padN(4), mark(sample), tlv(0)), udp()), packet(dest(tlv(2), tlv(0)), udp())},
		{"first of two headers", packet(dest(mark(sample), padN(2)), routing(), dest(tlv(4)), udp()), packet(routing(), dest(tlv(4)), udp())},
		{"before ESP", packet(dest(mark(sample), padN(2)), esp()), packet(esp())},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := bytes.Clone(c.in)
			out, o, err := pdm.Remove(c.in)
			if err != nil || o != sample {
				t.Fatalf("%v, %v", o, err)
			}
			if !bytes.Equal(out, c.want) {
				t.Errorf("\n got %x\nwant %x", out, c.want)
			}
			if !bytes.Equal(c.in, before) {
				t.Error("the input was changed")
			}
		})
	}
}

func TestRemoveRefuses(t *testing.T) {
	marked := dest(mark(sample), padN(2))
	v2 := dest(append([]byte{0x0F, 0x12}, make([]byte, 18)...), padN(2))
	for _, c := range []struct {
		name string
		pkt  []byte
		want error
	}{
		{"unmarked", packet(udp()), pdm.ErrNone},
		{"PDMv2", packet(v2, udp()), pdm.ErrVersion2},
		{"AH", packet(auth(), marked, udp()), ipv6.ErrAuthenticated},
		{"fragment", packet(fragment(0), marked, udp()), ipv6.ErrFragment},
		{"cut short", packet(marked, udp())[:60], ipv6.ErrTruncated},
	} {
		if out, _, err := pdm.Remove(c.pkt); !errors.Is(err, c.want) || out != nil {
			t.Errorf("%s: %x, %v; want %v", c.name, out, err, c.want)
		}
	}
}

// checkInsert holds Insert to its rule: an error, or the packet plus one legal
// option that Remove removes again.
func checkInsert(t interface{ Fatalf(string, ...any) }, pkt []byte, o pdm.Option) {
	before := bytes.Clone(pkt)
	out, err := pdm.Insert(pkt, o)
	if !bytes.Equal(pkt, before) {
		t.Fatalf("the input was changed")
	}
	if err != nil {
		if out != nil {
			t.Fatalf("a packet with the error %v", err)
		}
		return
	}
	was, err := pdm.Walk(pkt)
	if err != nil {
		t.Fatalf("a packet that cannot be walked was marked: %v", err)
	}
	is, err := pdm.Walk(out)
	if err != nil {
		t.Fatalf("%x\ncannot be walked when marked: %v\n%x", pkt, err, out)
	}
	if got, err := pdm.Find(out); err != nil || got != o {
		t.Fatalf("inserted %v, found %v, %v", o, got, err)
	}
	last, _ := is.Last()
	switch {
	case is.Proto != was.Proto, is.Upper != was.Upper+pdm.HeaderSize, is.End != was.End+pdm.HeaderSize:
		t.Fatalf("%+v became %+v", was, is)
	case is.Header != last.At:
		t.Fatalf("the option is not in the header before the upper layer: %+v", is)
	case (is.Option-is.Header)%2 != 0:
		t.Fatalf("the option is at an odd place: %+v", is)
	case !bytes.Equal(out[is.Upper:], pkt[was.Upper:]):
		t.Fatalf("bytes behind the option changed")
	}
	if _, err := pdm.Insert(out, o); !errors.Is(err, pdm.ErrMarked) {
		t.Fatalf("marked twice: %v", err)
	}
	back, got, err := pdm.Remove(out)
	if err != nil || got != o || !bytes.Equal(back, pkt) {
		t.Fatalf("\n   in %x\nmarked %x\n  out %x, %v", pkt, out, back, err)
	}
}

func TestInsertRemoveIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkInsert(t, packets().Draw(t, "packet"), options().Draw(t, "option"))
	})
}

// checkRemove holds Remove to its rule for packets that anybody marked.
func checkRemove(t interface{ Fatalf(string, ...any) }, pkt []byte) {
	before := bytes.Clone(pkt)
	out, _, err := pdm.Remove(pkt)
	if !bytes.Equal(pkt, before) {
		t.Fatalf("the input was changed")
	}
	if err != nil {
		return
	}
	was, _ := pdm.Walk(pkt)
	is, err := pdm.Walk(out)
	if err != nil {
		t.Fatalf("%x\ncannot be walked when unmarked: %v\n%x", pkt, err, out)
	}
	if _, err := pdm.Find(out); !errors.Is(err, pdm.ErrNone) {
		t.Fatalf("%x\nstill has an option: %v\n%x", pkt, err, out)
	}
	if is.Proto != was.Proto || !bytes.Equal(out[is.Upper:], pkt[was.Upper:]) || (was.Upper-is.Upper)%8 != 0 {
		t.Fatalf("%+v became %+v", was, is)
	}
}

func TestRemoveOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// The option somewhere in a Destination Options header.
		h := destinations().Draw(t, "header")
		at := 2
		for n := rapid.IntRange(0, 12).Draw(t, "place"); n > 0 && at < len(h.b); n-- {
			if h.b[at] == 0 {
				at++
			} else {
				at += 2 + int(h.b[at+1])
			}
		}
		b := append(append(bytes.Clone(h.b[2:at]), mark(sample)...), h.b[at:]...)
		checkRemove(t, packet(hopByHop(), dest(b, padN(4)), udp()))
	})
}

func FuzzInsert(f *testing.F) {
	for _, p := range seeds() {
		f.Add(p, mark(sample))
	}
	f.Fuzz(func(t *testing.T, pkt, option []byte) {
		o, err := pdm.DecodeOption(option)
		if err != nil {
			o = sample
		}
		checkInsert(t, pkt, o)
	})
}

func FuzzRemove(f *testing.F) {
	for _, p := range seeds() {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, pkt []byte) { checkRemove(t, pkt) })
}

func BenchmarkInsert(b *testing.B) {
	pkt := packet(udp())
	for b.Loop() {
		out, _ := pdm.Insert(pkt, sample)
		sink += uint64(len(out))
	}
}

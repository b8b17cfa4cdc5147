package flow

import (
	"testing"

	"pgregory.net/rapid"
)

// TestIndex: it answers as a map does, whatever comes and goes, also where many
// keys share a place.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var keys []Key
		x := newIndex(func(entry int32) *Key { return &keys[entry] })
		want := map[Key]int32{}
		for range rapid.IntRange(0, 2000).Draw(t, "steps") {
			k := Key{SrcPort: rapid.Uint16Range(0, 500).Draw(t, "key")}
			entry, there := want[k]
			if got := x.find(x.tag(&k), &k); there && got != entry || !there && got != -1 {
				t.Fatalf("find: %d, want %d (there: %t)", got, entry, there)
			}
			if there {
				x.remove(x.tag(&k), entry)
				delete(want, k)
			} else {
				keys = append(keys, k)
				x.insert(x.tag(&k), int32(len(keys)-1))
				want[k] = int32(len(keys) - 1)
			}
			if x.used != len(want) {
				t.Fatalf("%d used, want %d", x.used, len(want))
			}
		}
	})
}

// Both halves of a conversation are looked for from the same place.
func TestIndexOfConversations(t *testing.T) {
	x := newIndex(nil)
	x.places = make([]place, 1<<20)
	for name, k := range map[string]Key{
		"UDP":           {Src: [16]byte{1}, Dst: [16]byte{2}, SrcPort: 3, DstPort: 4, Iface: 5, Proto: 17},
		"to itself":     {Src: [16]byte{1}, Dst: [16]byte{1}, SrcPort: 3, DstPort: 3, Proto: 6},
		"ICMP echo":     {Src: [16]byte{1}, Dst: [16]byte{2}, SrcPort: 77, DstPort: 8 << 8, Proto: 1},
		"ICMPv6 echo":   {Src: [16]byte{1}, Dst: [16]byte{2}, SrcPort: 77, DstPort: 128 << 8, Proto: 58, IPv6: true},
		"no transport":  {Src: [16]byte{1}, Dst: [16]byte{2}, VLAN: 7, Proto: 47},
		"other tunnels": {Src: [16]byte{1}, Dst: [16]byte{2}, Tunnel: TunnelVXLAN, Proto: 6, InnerVLAN: 9},
	} {
		r := k.Reverse()
		there, back := x.tag(&k), x.tag(&r)
		if got := x.reverse(there, &k, &r); got != back {
			t.Errorf("%s: the reverse has the tag %#x, not %#x", name, back, got)
		}
		if x.home(there) != x.home(back) {
			t.Errorf("%s: homes %d and %d", name, x.home(there), x.home(back))
		}
		if there == back && k.Src != k.Dst {
			t.Errorf("%s: both halves have the tag %#x", name, there)
		}
	}
}

// Keys that a sender can choose one by one do not share their place.
func TestIndexSpreads(t *testing.T) {
	x := newIndex(nil)
	x.places = make([]place, 1<<20)
	for name, vary := range map[string]func(k *Key, i int){
		"source port":      func(k *Key, i int) { k.SrcPort = uint16(i) },
		"ICMP type, code":  func(k *Key, i int) { k.Proto, k.DstPort = protoICMP, uint16(i) },
		"ICMPv6 messages":  func(k *Key, i int) { k.Proto, k.DstPort = protoICMPv6, uint16(i) },
		"source address":   func(k *Key, i int) { k.Src[15], k.Src[14] = byte(i), byte(i>>8) },
		"both the same":    func(k *Key, i int) { k.SrcPort, k.DstPort = uint16(i), uint16(i) },
		"both, other ways": func(k *Key, i int) { k.SrcPort, k.DstPort = uint16(i), ^uint16(i) },
	} {
		homes := map[int]int{}
		most := 0
		for i := range 1 << 16 {
			k := Key{Src: [16]byte{1}, Dst: [16]byte{2}, Proto: 17}
			vary(&k, i)
			at := x.home(x.tag(&k))
			homes[at]++
			most = max(most, homes[at])
		}
		if most > 8 {
			t.Errorf("%s: %d of 65536 keys share a place of a million", name, most)
		}
	}
}

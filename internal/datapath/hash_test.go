package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// TestFlowsThatOnlyDifferInTwoBytes: whoever chooses addresses and ports, but
// does not know the keys of the hash, cannot push flows out of a table that has
// room for them. Bytes that end a 64-bit word are what a sum of products would
// be weak at.
func TestFlowsThatOnlyDifferInTwoBytes(t *testing.T) {
	const values = 64 // of each byte
	v4 := packet.Eth().IPv4("10.0.0.0", "192.0.2.0").UDP(1, 53).Payload(0).Bytes()
	v6 := packet.Eth().IPv6("2001:db8::", "2001:db8:1::").UDP(1, 53).Payload(0).Bytes()
	const src4, dst4, src6, dst6, ports6 = 14 + 12, 14 + 16, 14 + 8, 14 + 24, 14 + 40
	for _, tc := range []struct {
		name          string
		frame         []byte
		first, second int
	}{
		{"IPv4: host of both addresses", v4, src4 + 3, dst4 + 3},
		{"IPv4: subnet and host of the source", v4, src4 + 2, src4 + 3},
		{"IPv4: network of both addresses", v4, src4, dst4},
		{"IPv4: network and host", v4, src4, dst4 + 3},
		{"IPv6: host of both addresses", v6, src6 + 15, dst6 + 15},
		{"IPv6: subnet and host of the source", v6, src6 + 7, src6 + 15},
		{"IPv6: subnet of both addresses", v6, src6 + 7, dst6 + 7},
		{"IPv6: subnet and host", v6, src6 + 7, dst6 + 15},
		{"IPv6: network and host", v6, src6, dst6 + 15},
		{"IPv6: source port and host", v6, ports6 + 1, dst6 + 15},
		{"IPv6: destination port and host", v6, ports6 + 3, dst6 + 15},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := load(t, Config{MaxEntries: 16 * values * values * 2, WholeTable: true})
			for i := range values * values {
				// The upper bits of both bytes, so that the differences are large ones.
				tc.frame[tc.first], tc.frame[tc.second] = byte(i/values*4), byte(i%values*4)
				if _, err := loaded(t, d, Ingress).Run(&ebpf.RunOptions{Data: tc.frame}); err != nil {
					t.Fatal(err)
				}
			}
			reported := map[string]bool{}
			if err := d.Drain(func(d *flow.Delta) { reported[fmt.Sprint(d.Key)] = true }); err != nil {
				t.Fatal(err)
			}
			stats, err := d.Stats()
			if err != nil {
				t.Fatal(err)
			}
			if len(reported) != values*values || stats.Evicted > 0 {
				t.Errorf("%d flows, %d evicted; want %d and none in a table of %d", len(reported), stats.Evicted, values*values, stats.MaxEntries)
			}
		})
	}
}

// Every key is where its number was, in all programs.
func TestHashKeys(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"ingress": Ingress.loadChecked, "egress": Egress.loadChecked} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		var keys hashKeys
		for i := range keys {
			keys[i] = 0xf0000000 + uint32(i) // negative where it is an operand
		}
		if err := setHashKeys(spec, &keys); err != nil {
			t.Fatal(err)
		}
		found := map[uint32]int{}
		for _, p := range spec.Programs {
			for _, ins := range p.Instructions {
				found[uint32(ins.Constant)]++
			}
		}
		for i, key := range keys {
			if left := found[uint32(tcHashKeysHASH_KEY)+uint32(i)]; found[key] == 0 || left > 0 {
				t.Errorf("%s: key %d is in %d instructions, and %d are left without", name, i, found[key], left)
			}
		}
		if err := setHashKeys(spec, &keys); err == nil {
			t.Errorf("%s: no error where there is no place for keys", name)
		}
	}
}

package ioam_test

import (
	"testing"

	"github.com/waymark-net/waymark/wire/ioam"
)

// The examples of draft-ietf-sfc-proof-of-transit-08, appendix A, and one of 64 bits.
func TestPOTVectors(t *testing.T) {
	for _, c := range []struct {
		name                  string
		prime, secret, random uint64
		nodes                 []ioam.Share
		want                  []uint64
	}{
		{
			"of the draft", 53, 10, 45,
			[]ioam.Share{{Share: 28, Poly2: 7*2 + 10*4, LPC: 21}, {Share: 17, Poly2: 7*4 + 10*16, LPC: 48}, {Share: 47, Poly2: 7*5 + 10*25, LPC: 38}},
			[]uint64{17, 39, 2},
		},
		{
			"64 bits", 0x7fff0000fa884685, 0x7fff0000fa88465d, 1,
			[]ioam.Share{
				{Share: 0x6c22eff0f45ec56d, LPC: 0x7fff0000fa884682, Poly2: 0xffb543d4a9c},
				{Share: 0x564cdbdec4eb625d, LPC: 1, Poly2: 0x23f3a227186a},
				{Share: 0x7a08fbfc5b93116d, LPC: 3, Poly2: 0x3ff738597ce},
			},
			[]uint64{0x3b94003e15c4a371, 0x11e2000f824ed7b4, 0x7fff0000fa88465e},
		},
	} {
		o := &ioam.POT{PktID: c.random}
		for i, s := range c.nodes {
			if ioam.VerifyPOT(c.prime, c.secret, o) {
				t.Errorf("%s: verified before node %d", c.name, i)
			}
			s.Prime = c.prime
			if o.Cumulative = s.Update(o.Cumulative, o.PktID); o.Cumulative != c.want[i] {
				t.Errorf("%s: after node %d %x, want %x", c.name, i, o.Cumulative, c.want[i])
			}
		}
		if !ioam.VerifyPOT(c.prime, c.secret, o) {
			t.Errorf("%s: not verified", c.name)
		}
	}
}

package ioam_test

import (
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

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

// Every path verifies once each of its nodes has updated the option once, in any order;
// one that was left out, or that updated twice, shows.
func TestNewShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prime := rapid.SampledFrom([]uint64{53, 65537, 0x7fff0000fa884685, 1<<64 - 59}).Draw(t, "prime")
		secret := rapid.Uint64Range(0, prime-1).Draw(t, "secret")
		n := rapid.IntRange(2, 9).Draw(t, "nodes")
		shares, err := ioam.NewShares(prime, secret, n, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		pktID := rapid.Uint64().Draw(t, "pktid")
		pass := func(nodes []ioam.Share) bool {
			o := &ioam.POT{PktID: pktID}
			for _, s := range nodes {
				o.Cumulative = s.Update(o.Cumulative, o.PktID)
			}
			return ioam.VerifyPOT(prime, secret, o)
		}
		path := rapid.Permutation(shares).Draw(t, "path")
		if !pass(path) {
			t.Fatalf("%d nodes of %+v do not verify", n, shares)
		}
		if prime > 1<<32 && (pass(path[1:]) || pass(append(path, path[0]))) {
			t.Fatalf("verified with a node less or one that updated twice: %+v", shares)
		}
	})
}

func TestNewSharesRefuses(t *testing.T) {
	for _, c := range []struct {
		prime, secret uint64
		n             int
		random        io.Reader
		want          error
	}{
		{54, 1, 3, rand.Reader, ioam.ErrShare},
		{0, 0, 3, rand.Reader, ioam.ErrShare},
		{53, 53, 3, rand.Reader, ioam.ErrShare},
		{53, 1, 1, rand.Reader, ioam.ErrShare},
		{53, 1, 53, rand.Reader, ioam.ErrShare},
		{53, 1, 3, strings.NewReader(""), io.EOF},
	} {
		if shares, err := ioam.NewShares(c.prime, c.secret, c.n, c.random); !errors.Is(err, c.want) || shares != nil {
			t.Errorf("%d, %d, %d: %v, %v", c.prime, c.secret, c.n, shares, err)
		}
	}
}

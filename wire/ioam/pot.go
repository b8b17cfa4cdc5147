package ioam

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"math/bits"
	"slices"
)

// POT is the body of a proof of transit option of type 0 (RFC 9197 section 4.5).
type POT struct {
	Namespace  uint16
	Type       uint8 // 0
	Flags      uint8 // none is defined
	PktID      uint64
	Cumulative uint64
}

const potSize = 20

// Kind implements [Body].
func (*POT) Kind() Kind { return ProofOfTransit }

// AppendTo implements [Body].
func (p *POT) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, p.Namespace)
	b = append(b, p.Type, p.Flags)
	b = binary.BigEndian.AppendUint64(b, p.PktID)
	return binary.BigEndian.AppendUint64(b, p.Cumulative)
}

// pot reads a proof of transit body.
func (r *reader) pot() *POT {
	if !r.has(4, "a proof of transit option") {
		return nil
	}
	p := &POT{Namespace: binary.BigEndian.Uint16(r.body), Type: r.body[2], Flags: r.body[3]}
	if p.Flags != 0 {
		r.problems.add(r.at+3, ErrUndefined, "Flags are %02X", p.Flags)
	}
	if p.Type != 0 {
		r.problems.add(r.at+2, ErrPOTType, "%d", p.Type)
		return p
	}
	if !r.has(potSize, "a proof of transit option") {
		return p
	}
	p.PktID = binary.BigEndian.Uint64(r.body[4:])
	p.Cumulative = binary.BigEndian.Uint64(r.body[12:])
	r.ends(potSize, "Cumulative")
	return p
}

// Share is what one node of a path needs for proof of transit by Shamir's secret
// sharing (draft-ietf-sfc-proof-of-transit-08): its points on the secret and on the
// public polynomial, and its Lagrange polynomial constant. All are below Prime.
type Share struct {
	Prime uint64
	Share uint64 // secret polynomial at the node's x
	Poly2 uint64 // public polynomial at x, without its constant term
	LPC   uint64
}

// Update returns the Cumulative that the node writes: pktID is that of the option.
func (s Share) Update(cumulative, pktID uint64) uint64 {
	point := addMod(addMod(s.Share%s.Prime, s.Poly2%s.Prime, s.Prime), pktID%s.Prime, s.Prime)
	return addMod(cumulative%s.Prime, mulMod(point, s.LPC, s.Prime), s.Prime)
}

// VerifyPOT reports whether every node of the path has updated the option.
func VerifyPOT(prime, secret uint64, p *POT) bool {
	return p.Cumulative == addMod(bits.Rem64(0, secret, prime), bits.Rem64(0, p.PktID, prime), prime)
}

// NewShares returns the shares of a path of n nodes, for which random is read: the
// secret is the constant term of a random polynomial of degree n-1, and the option
// verifies only after each of the nodes has updated it once, in any order. It fails
// with [ErrShare] for a prime that is none, a secret that is not below it, and n that
// is not from 2 up to the prime less one.
func NewShares(prime, secret uint64, n int, random io.Reader) ([]Share, error) {
	switch {
	case !new(big.Int).SetUint64(prime).ProbablyPrime(20):
		return nil, fmt.Errorf("%w: %d is not a prime", ErrShare, prime)
	case secret >= prime:
		return nil, fmt.Errorf("%w: the secret %d is not below the prime %d", ErrShare, secret, prime)
	case n < 2 || uint64(n) >= prime:
		return nil, fmt.Errorf("%w: a path of %d nodes", ErrShare, n)
	}
	hidden, err := polynomial(prime, n, random)
	if err != nil {
		return nil, err
	}
	public, err := polynomial(prime, n, random)
	if err != nil {
		return nil, err
	}
	hidden[0], public[0] = secret, 0
	shares := make([]Share, n)
	for i := range shares {
		x := uint64(i + 1)
		shares[i] = Share{Prime: prime, Share: evaluate(hidden, x, prime), Poly2: evaluate(public, x, prime), LPC: lagrange(x, n, prime)}
	}
	return shares, nil
}

// polynomial draws n coefficients below p. That of the highest power is never 0, or
// fewer nodes would do.
func polynomial(p uint64, n int, random io.Reader) ([]uint64, error) {
	limit := new(big.Int).SetUint64(p)
	c := make([]uint64, n)
	for i := range c {
		v, err := rand.Int(random, limit)
		if err != nil {
			return nil, fmt.Errorf("ioam: draw a polynomial: %w", err)
		}
		c[i] = v.Uint64()
	}
	if c[n-1] == 0 {
		c[n-1] = 1
	}
	return c, nil
}

// evaluate is the polynomial at x, by Horner's rule.
func evaluate(coefficients []uint64, x, p uint64) (y uint64) {
	for _, c := range slices.Backward(coefficients) {
		y = addMod(mulMod(y, x, p), c, p)
	}
	return y
}

// lagrange is the weight of the point at x among those at 1 to n, for the value at 0.
func lagrange(x uint64, n int, p uint64) uint64 {
	weight, divisor := uint64(1), uint64(1)
	for i := range uint64(n) {
		if other := i + 1; other != x {
			weight = mulMod(weight, other, p)
			divisor = mulMod(divisor, addMod(other, p-x, p), p)
		}
	}
	inverse := new(big.Int).ModInverse(new(big.Int).SetUint64(divisor), new(big.Int).SetUint64(p))
	return mulMod(weight, inverse.Uint64(), p)
}

// addMod is a+b modulo p, for a and b below p.
func addMod(a, b, p uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 || sum >= p {
		sum -= p
	}
	return sum
}

// mulMod is a·b modulo p.
func mulMod(a, b, p uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return bits.Rem64(hi, lo, p)
}

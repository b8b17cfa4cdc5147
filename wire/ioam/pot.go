package ioam

import (
	"encoding/binary"
	"math/bits"
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
	return p.Cumulative == addMod(secret%prime, p.PktID%prime, prime)
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

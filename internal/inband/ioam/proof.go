package ioam

import (
	"math/big"
	"math/bits"
)

// maxProofs is how many namespaces have proof of transit, as IOAM_PROOFS in bpf/ioam/abi.h.
const maxProofs = uint32(abiIoamInsertionSizeIOAM_PROOFS)

// Proof is the node's part in proof of transit of a namespace.
type Proof struct {
	Prime             uint64 // odd
	Share, Poly2, LPC uint64
	HasShare          bool
	Secret            uint64
	Verifies          bool // the node is the last one, and knows the secret
}

// compile prepares the numbers for Montgomery multiplication, as bpf/ioam/proof.h takes them.
func (p *Proof) compile() abiIoamProof {
	inverse := p.Prime // of the prime modulo 2^64, by Newton's iteration: right in 3 bits, then in twice as many
	for range 5 {
		inverse *= 2 - p.Prime*inverse
	}
	out := abiIoamProof{
		Prime: p.Prime, Inverse: -inverse, Point: addMod(p.Share%p.Prime, p.Poly2%p.Prime, p.Prime),
		Weight: bits.Rem64(p.LPC%p.Prime, 0, p.Prime), Secret: p.Secret % p.Prime,
	}
	if p.HasShare {
		out.Shares = 1
	}
	if p.Verifies {
		out.Verifies = 1
	}
	return out
}

// addMod is a+b modulo p, for a and b below p.
func addMod(a, b, p uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 || sum >= p {
		sum -= p
	}
	return sum
}

// PrimeForProof reports whether proof of transit can use the number: an odd prime.
func PrimeForProof(p uint64) bool {
	return p&1 == 1 && new(big.Int).SetUint64(p).ProbablyPrime(20)
}

// proofNumber is 1 + the place of a namespace's proof among all of a copy; 0: it has none.
func (n *Node) proofNumber(space uint16) uint8 {
	number := uint8(0)
	for _, ns := range n.Namespaces {
		if ns.Proof == nil {
			continue
		}
		number++
		if ns.ID == space {
			return number
		}
	}
	return 0
}

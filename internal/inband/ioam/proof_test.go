package ioam

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	wire "github.com/waymark-net/waymark/wire/ioam"
)

// The examples of draft-ietf-sfc-proof-of-transit-08, appendix A, and one of 64 bits, by way of three nodes; then
// random shares, which package wire/ioam computes as well. A node that is left out shows.
func (h *host) provesTransit(t *testing.T) {
	h.inside(t, func() {
		h.proves(t, 10, 45, []wire.Share{
			{Prime: 53, Share: 28, Poly2: 7*2 + 10*4, LPC: 21},
			{Prime: 53, Share: 17, Poly2: 7*4 + 10*16, LPC: 48},
			{Prime: 53, Share: 47, Poly2: 7*5 + 10*25, LPC: 38},
		}, []uint64{17, 39, 2})
		h.proves(t, 0x7fff0000fa88465d, 1, []wire.Share{
			{Prime: prime, Share: 0x6c22eff0f45ec56d, LPC: 0x7fff0000fa884682, Poly2: 0xffb543d4a9c},
			{Prime: prime, Share: 0x564cdbdec4eb625d, LPC: 1, Poly2: 0x23f3a227186a},
			{Prime: prime, Share: 0x7a08fbfc5b93116d, LPC: 3, Poly2: 0x3ff738597ce},
		}, []uint64{0x3b94003e15c4a371, 0x11e2000f824ed7b4, 0x7fff0000fa88465e})
		random, seed := rand.New(rand.NewPCG(3, 3)), rand.NewChaCha8([32]byte{1})
		for _, p := range []uint64{3, 53, 65537, prime, 1<<63 - 25, 1<<64 - 59} {
			for range 4 {
				secret := random.Uint64() % p
				shares, err := wire.NewShares(p, secret, 2+int(min(p, 9)-3)/2, seed)
				if err != nil {
					t.Fatal(err)
				}
				packet := []uint64{0, random.Uint64(), 1<<64 - 1}[random.IntN(3)]
				want, cumulative := []uint64{}, uint64(0)
				for _, s := range shares {
					cumulative = s.Update(cumulative, packet)
					want = append(want, cumulative)
				}
				h.proves(t, secret, packet, shares, want)
			}
		}
		h.leavesProofs(t)
	})
}

// proves passes a packet through the nodes of a path; the last one verifies it.
func (h *host) proves(t *testing.T, secret, packet uint64, shares []wire.Share, want []uint64) {
	t.Helper()
	frame := carrying(t, &wire.POT{Namespace: spaceA, PktID: packet})
	before := h.proofCounts(t)
	for i, s := range shares {
		n := node()
		last := i == len(shares)-1
		n.Namespaces[0].Proof = &Proof{Prime: s.Prime, Share: s.Share, Poly2: s.Poly2, LPC: s.LPC, HasShare: true, Secret: secret, Verifies: last}
		if err := h.node.Apply(n); err != nil {
			t.Fatal(err)
		}
		for _, w := range h.ways() {
			out, verdict := w.run(t, frame)
			expected := bytes.Clone(frame)
			binary.BigEndian.PutUint64(expected[optionAt+16:], want[i])
			if verdict != w.pass || !bytes.Equal(out, expected) {
				t.Fatalf("%s, prime %d, node %d: verdict %d, cumulative %x, want %x", w.name, s.Prime, i, verdict, out[optionAt+16:optionAt+24], want[i])
			}
		}
		binary.BigEndian.PutUint64(frame[optionAt+16:], want[i])
	}
	passed := h.proofCounts(t)
	if got := passed["proven"] - before["proven"]; got != uint64(len(h.ways())) || passed["unproven"] != before["unproven"] {
		t.Errorf("prime %d: %d packets proven, counts %v", shares[0].Prime, got, passed)
	}
	if shares[0].Prime < prime { // small ones prove little
		return
	}
	// Once more through the last node.
	if _, verdict := h.tc(t, "test_in", frame); verdict != verdictPass {
		t.Errorf("verdict %d", verdict)
	}
	if after := h.proofCounts(t); after["proven"] != passed["proven"] || after["unproven"] != passed["unproven"]+1 {
		t.Errorf("prime %d: counts %v after a packet that a node updated twice, %v before", shares[0].Prime, after, passed)
	}
}

// leavesProofs shows options that pass unchanged.
func (h *host) leavesProofs(t *testing.T) {
	t.Helper()
	n := inserting(t)
	n.Interfaces[0].Exceptions = map[uint16]Role{0: RoleEgress}
	n.Namespaces = append(n.Namespaces, Namespace{Proof: n.Namespaces[0].Proof})
	if err := h.node.Apply(n); err != nil {
		t.Fatal(err)
	}
	short := carrying(t, &wire.POT{Namespace: spaceA})
	short[optionAt+1] -= 4
	copy(short[optionAt+20:], []byte{1, 2, 0, 0})
	for reason, frame := range map[string][]byte{
		"namespace_unknown": carrying(t, &wire.POT{Namespace: unknown}),
		"no_role":           carrying(t, &wire.POT{Namespace: 0}),
		"":                  carrying(t, &wire.POT{Namespace: spaceB}), // without proof of transit
		"proof_unknown":     short,
	} {
		before := h.proofCounts(t)
		for _, w := range h.ways() {
			if out, verdict := w.run(t, frame); verdict != w.pass || !bytes.Equal(out, frame) {
				t.Errorf("%s, %s: verdict %d, % x", w.name, reason, verdict, out)
			}
		}
		if after := h.proofCounts(t); reason != "" && after[reason] != before[reason]+uint64(len(h.ways())) {
			t.Errorf("%s: counts %v, %v before", reason, after, before)
		}
	}
}

func (h *host) proofCounts(t *testing.T) map[string]uint64 {
	t.Helper()
	s, err := h.node.Stats()
	if err != nil {
		t.Fatal(err)
	}
	counts, err := h.node.Counts()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{"proven": s.Proven}
	for _, c := range counts {
		out[c.Reason] += c.Packets
	}
	return out
}

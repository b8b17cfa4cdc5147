package disk

import (
	"math/bits"
	"math/rand/v2"

	"github.com/waymark-net/waymark/internal/digest"
)

// table numbers keys of some words each, in the order in which they are added. Their digests have a secret of this process.
type table struct {
	digest.Table
	width int
	words []uint64 // of all keys
}

var secrets = [4]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64() | 1, rand.Uint64() | 1}

func digestOf(key []uint64) digest.Digest {
	a, b := secrets[0], secrets[1]
	for _, w := range key {
		high, low := bits.Mul64(a^w, secrets[2])
		a = high ^ low
		high, low = bits.Mul64(b^w, secrets[3])
		b = high ^ low
	}
	return digest.Digest{a, b}
}

// add gives a key that has none its number.
func (t *table) add(key []uint64, d digest.Digest) int32 {
	t.words = append(t.words, key...)
	return t.Add(d)
}

// key is that of a number.
func (t *table) key(number int32) []uint64 { return t.words[int(number)*t.width:][:t.width] }

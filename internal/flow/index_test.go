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
			if got := x.find(&k); there && got != entry || !there && got != -1 {
				t.Fatalf("find: %d, want %d (there: %t)", got, entry, there)
			}
			if there {
				x.remove(&k, entry)
				delete(want, k)
			} else {
				keys = append(keys, k)
				x.insert(&k, int32(len(keys)-1))
				want[k] = int32(len(keys) - 1)
			}
			if x.used != len(want) {
				t.Fatalf("%d used, want %d", x.used, len(want))
			}
		}
	})
}

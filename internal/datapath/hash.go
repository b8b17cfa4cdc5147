package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// hashKeys are what hashes of addresses and ports are keyed with.
type hashKeys [tcHashKeysHASH_KEYS]uint32

func randomHashKeys() (keys hashKeys) {
	var random [4 * len(keys)]byte
	rand.Read(random[:])
	for i := range keys {
		keys[i] = binary.NativeEndian.Uint32(random[4*i:])
	}
	return keys
}

// setHashKeys writes the keys into the instructions that add them: keyed() in
// bpf/hash.h adds HASH_KEY and the index in place of each.
func setHashKeys(spec *ebpf.CollectionSpec, keys *hashKeys) error {
	const first = int64(tcHashKeysHASH_KEY)
	add := asm.Add.Imm32(asm.R0, 0).OpCode
	var set [len(keys)]bool
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			if key := ins.Constant - first; ins.OpCode == add && key >= 0 && key < int64(len(keys)) {
				ins.Constant = int64(int32(keys[key]))
				set[key] = true
			}
		}
	}
	if i := slices.Index(set[:], false); i >= 0 {
		return fmt.Errorf("the built-in programs have no place for key %d of their hashes", i)
	}
	return nil
}

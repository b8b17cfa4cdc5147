// Package packed uncompresses BPF objects that scripts/pack-object compressed. Packages with such objects call it.
package packed

import "github.com/klauspost/compress/zstd"

// Object is the object. Of a damaged one it is the part before the damage, which the loader refuses.
func Object(packed []byte) []byte {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil
	}
	defer r.Close()
	object, _ := r.DecodeAll(packed, nil)
	return object
}

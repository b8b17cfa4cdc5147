// Package packed uncompresses BPF objects that scripts/pack-object compressed. Packages with such objects call it.
package packed

import (
	"bytes"
	"compress/gzip"
	"io"
)

// Object is the object. Of a damaged one it is the part before the damage, which the loader refuses.
func Object(packed []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	object, _ := io.ReadAll(r)
	return object
}

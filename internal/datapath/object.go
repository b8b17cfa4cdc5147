package datapath

import (
	"bytes"
	"compress/gzip"
	"io"
)

// unpack uncompresses an object that scripts/pack-object compressed. Of a damaged one it
// returns the part before the damage, which the loader refuses.
func unpack(packed []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	object, _ := io.ReadAll(r)
	return object
}

package disk

import (
	"sync"

	"github.com/klauspost/compress/zstd"
	parquet "github.com/parquet-go/parquet-go/compress/zstd"
)

// compression is Zstandard with a window that holds any page: that of the library takes 16 MB for each page above 128 KiB.
type compression struct {
	parquet.Codec
	encoders sync.Pool
}

const zstdWindow = 1 << 18

// Encode replaces that of the library.
func (c *compression) Encode(dst, src []byte) ([]byte, error) {
	e, _ := c.encoders.Get().(*zstd.Encoder)
	if e == nil {
		var err error
		if e, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true),
			zstd.WithZeroFrames(true), zstd.WithEncoderCRC(false)); err != nil {
			return nil, err
		}
	}
	defer c.encoders.Put(e)
	return e.EncodeAll(src, dst[:0]), nil
}

var compressed compression

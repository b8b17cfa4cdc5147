package disk

import (
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// A column in the codec that is left out gives an error, no bytes.
func TestNoBrotli(t *testing.T) {
	if b, err := parquet.Brotli.Encode(nil, []byte("column")); err == nil || !strings.Contains(err.Error(), "without the codec") {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	if b, err := parquet.Brotli.Decode(nil, []byte("column")); err == nil || !strings.Contains(err.Error(), "without the codec") {
		t.Errorf("%d bytes: %v", len(b), err)
	}
}

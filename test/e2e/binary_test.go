package e2e

import (
	"debug/elf"
	"os"
	"testing"
)

// binaryBytes is what the agent's binary may have at most.
// Parquet files of the history take 5 MB of it; the console has its pages in it.
const binaryBytes = 25_000_000

// TestBinary: the agent is one small static file.
func TestBinary(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > binaryBytes {
		t.Errorf("%s has %d bytes, at most %d are allowed: text/template makes the linker keep unused methods, and gopacket decoders of 200 protocols; benchmarks and tools belong into waymark-bench", program, info.Size(), binaryBytes)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s is not static: it asks for a dynamic loader", program)
		}
	}
}

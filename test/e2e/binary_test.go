package e2e

import (
	"debug/elf"
	"os"
	"testing"
)

// Programs have so many bytes at most. Parquet files of the history take 5 MB of the agent; the console has its pages in it.
const (
	agentBytes    = 25_000_000
	analyzerBytes = 18_000_000
	kafkaBytes    = 10_500_000
)

// TestBinary: agent, analyzer and the sender to Kafka are one small static file each.
func TestBinary(t *testing.T) {
	t.Parallel()
	checkBinary(t, program, agentBytes)
	checkBinary(t, program+"-analyze", analyzerBytes)
	checkBinary(t, program+"-kafka", kafkaBytes)
}

func checkBinary(t *testing.T, program string, most int64) {
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > most {
		t.Errorf("%s has %d bytes, at most %d are allowed: text/template makes the linker keep unused methods, and gopacket decoders of 200 protocols; benchmarks and tools belong into waymark-bench", program, info.Size(), most)
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

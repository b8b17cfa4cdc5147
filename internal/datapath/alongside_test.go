package datapath

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/test/packet"
)

// The probe that is compiled without features, which benchmarks compare with, passes
// the verifier and counts.
func TestProbeWithoutFeatures(t *testing.T) {
	defer datapathtest.OnOneProcessor(t)()
	d := load(t, Config{MaxEntries: 1024})
	frame := packet.Eth().IPv4("10.0.0.0", "192.0.2.1").UDP(0, 53).Payload(100).Bytes()
	coll, err := d.Alongside(program.Without, func(spec *ebpf.CollectionSpec) error {
		return program.Vary(spec, frame, addressOffset, portsOffset, 1)
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer coll.Close()
	if _, err := coll.Programs["bench_without"].Run(&ebpf.RunOptions{Data: frame, Repeat: 20}); err != nil {
		t.Fatal(err)
	}
	if got := drained(t, d, 1); got.flows.totalPackets != 20 {
		t.Errorf("%d packets are counted, want 20", got.flows.totalPackets)
	}
}

// Package program holds the compiled BPF programs of tests and benchmarks. It
// stands apart so that the tests of internal/datapath can load what
// internal/bench loads. Output: collections, which
// datapath.Alongside loads over a probe's maps.
package program

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/packed"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type all_senders -type sender bench ../../../bpf/test/bench.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types without ../../../bpf/test/without.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types generate ../../../bpf/test/generate.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types ioam ../../../bpf/test/ioam_bench.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types ioamXDP ../../../bpf/test/ioam_bench_xdp.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types pass ../../../bpf/test/pass.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type time_spent hints ../../../bpf/test/hints_bench.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// Senders is what each CPU sends: variable senders of the programs.
type Senders = benchAllSenders

// Bench reads the programs that are run by BPF_PROG_TEST_RUN.
var Bench = packed.Once(loadBench)

// Without reads the probe as it would be without its optional features.
var Without = packed.Once(loadWithout)

// Generate reads the traffic generator.
var Generate = packed.Once(loadGenerate)

// IOAM reads the programs that fill traces at tc again and again.
var IOAM = packed.Once(loadIoam)

// IOAMXDP reads those at XDP.
var IOAMXDP = packed.Once(loadIoamXDP)

// Pass reads what sends packets over lanes that forward them.
var Pass = packed.Once(loadPass)

// Spent is the time that programs that drop packets spent: variable spent.
type Spent = hintsTimeSpent

// Hints reads the programs that read hints, or not even the packet.
var Hints = packed.Once(loadHints)

// Stride, how far it is from one flow to the next, is a prime, so coprime to all smaller numbers of flows.
const Stride = 2654435761

// Vary makes the programs of a collection send a frame as packets of so many
// flows: they write the number of the flow into the last four bytes of the
// source address and into the source port, whose offsets in the frame are given.
func Vary(spec *ebpf.CollectionSpec, frame []byte, address, ports uint32, flows uint64) error {
	// cfg_vary of bpf/test/vary.h
	err := spec.Variables["cfg_vary"].Set(struct{ Flows, Step, Address, BeforeAddress, Ports, DestinationPort uint32 }{
		Flows: uint32(flows), Step: uint32(Stride % flows),
		Address: address, BeforeAddress: binary.NativeEndian.Uint32(frame[address-4:]),
		Ports: ports, DestinationPort: uint32(binary.NativeEndian.Uint16(frame[ports+2:])) << 16,
	})
	if err != nil {
		return fmt.Errorf("constant cfg_vary: %w", err)
	}
	return nil
}

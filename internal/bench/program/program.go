// Package program holds the compiled BPF programs of tests and benchmarks. It
// stands apart so that the tests of internal/datapath can load what
// internal/bench loads. In comes nothing; out go collections, which
// datapath.Beside loads over a probe's maps.
package program

import "github.com/cilium/ebpf"

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types bench ../../../bpf/bench.bpf.c -- -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types without ../../../bpf/without.bpf.c -- -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types generate ../../../bpf/generate.bpf.c -- -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// Bench reads the programs that are run by BPF_PROG_TEST_RUN.
func Bench() (*ebpf.CollectionSpec, error) { return loadBench() }

// Without reads the probe as it would be without its optional features.
func Without() (*ebpf.CollectionSpec, error) { return loadWithout() }

// Generate reads the traffic generator.
func Generate() (*ebpf.CollectionSpec, error) { return loadGenerate() }

// Package program holds the compiled BPF programs of tests and benchmarks
// (bpf/bench.bpf.c). It stands apart so that the tests of internal/datapath can
// load what internal/bench loads. In comes nothing; out go collections that
// datapath.Beside loads over a probe's maps.
package program

import "github.com/cilium/ebpf"

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types bench ../../../bpf/bench.bpf.c -- -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// Bench reads the programs that are run by BPF_PROG_TEST_RUN.
func Bench() (*ebpf.CollectionSpec, error) { return loadBench() }

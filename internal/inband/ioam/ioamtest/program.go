// Package ioamtest holds the compiled BPF programs that IOAM is tested with
// (bpf/test/ioam_test.bpf.c), and sends packets with options. Output: a collection that
// datapath.Alongside loads over a probe's maps; options as they arrive. Only tests and
// benchmarks call it.
package ioamtest

import "github.com/cilium/ebpf"

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types test ../../../../bpf/test/ioam_test.bpf.c -- -I../../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// Load reads the programs.
func Load() (*ebpf.CollectionSpec, error) { return loadTest() }

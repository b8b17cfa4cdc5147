// Package ioamtest holds the compiled BPF programs that IOAM is tested with
// (bpf/test/ioam_test.bpf.c, ioam_hint.bpf.c), and sends packets with options. Output: a collection that
// datapath.Alongside loads over a probe's maps; options as they arrive. Only tests and
// benchmarks call it.
package ioamtest

import (
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/packed"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types test ../../../../bpf/test/ioam_test.bpf.c -- -I../../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types hint ../../../../bpf/test/ioam_hint.bpf.c -- -I../../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// Load reads the programs.
var Load = packed.Once(loadTest)

// Stamped is datapath.Early on a network card that stamps packets: the variable test_age, in ns, before the program runs.
var Stamped = &datapath.Program{Name: "waymark_xdp", Object: "test/ioam_hint.bpf.c", Hook: datapath.XDP, Load: loadHint}

// Package pdmtest holds the compiled BPF programs that PDM is tested with
// (bpf/test/pdm_test.bpf.c, pdm_testin.bpf.c, pdm_bench.bpf.c). Output: a collection that
// datapath.Alongside loads over a probe's maps. Only tests and benchmarks call it.
package pdmtest

import "github.com/waymark-net/waymark/internal/packed"

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type test_number -type test_event -type test_step -type pdm_state test ../../../../bpf/test/pdm_test.bpf.c -- -I../../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types ingress ../../../../bpf/test/pdm_testin.bpf.c -- -I../../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types bench ../../../../bpf/test/pdm_bench.bpf.c -- -I../../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// The case of a time, and a step of a flow's state, as in bpf/test/pdm_test.bpf.c.
type (
	Number = testTestNumber
	Event  = testTestEvent
	Step   = testTestStep
	State  = testPdmState
)

// What a step is.
const (
	StepNone    = testTestStepSTEP_NONE
	StepBegin   = testTestStepSTEP_BEGIN
	StepSend    = testTestStepSTEP_SEND
	StepReceive = testTestStepSTEP_RECEIVE
)

// Cases is how many cases one run takes.
const Cases = 4096

// Load reads the hook at egress, and what works through cases.
var Load = packed.Once(loadTest)

// LoadIngress reads the hook at ingress.
var LoadIngress = packed.Once(loadIngress)

// LoadBench reads the programs that are timed.
var LoadBench = packed.Once(loadBench)

// Package parsetest holds the compiled BPF programs that compare the two parsers
// and try hits (bpf/test/parse_test.bpf.c), and flow accounting at XDP
// (bpf/test/xdp_test.bpf.c), and two stages that insert into one packet
// (bpf/test/space_test.bpf.c). Output: a collection that
// datapath.Alongside loads over a probe's maps. Only tests call it.
package parsetest

import (
	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/packed"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type parsers test ../../../bpf/test/parse_test.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types xdp ../../../bpf/test/xdp_test.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type space_result space ../../../bpf/test/space_test.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// Outcome is what a frame is to the two parsers.
type Outcome = testParsers

// The outcomes that are no fault; all others say in what they differ.
const (
	Slow  = testParsersPARSERS_SLOW
	Agree = testParsersPARSERS_AGREE
)

// Load reads the programs, test_parsers and test_hit.
var Load = packed.Once(loadTest)

// LoadXDP reads the programs test_xdp, for frames in one buffer, and test_xdp_frags.
var LoadXDP = packed.Once(loadXdp)

// SpaceResult is what became of a packet that was to grow or to shrink.
type SpaceResult = spaceSpaceResult

// Results of the programs of LoadSpace.
const (
	SpaceOK        = spaceSpaceResultSPACE_OK
	SpaceJumbogram = spaceSpaceResultSPACE_JUMBOGRAM
	SpaceTooLong   = spaceSpaceResultSPACE_TOO_LONG
	SpaceDeep      = spaceSpaceResultSPACE_DEEP
	SpaceRefused   = spaceSpaceResultSPACE_REFUSED
)

// LoadSpace reads the programs test_grow and test_shrink, which need no probe.
func LoadSpace() (*ebpf.CollectionSpec, error) { return loadSpace() }

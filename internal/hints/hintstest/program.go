// Package hintstest has compiled programs for tests of hints. Only tests call it.
package hintstest

import "github.com/cilium/ebpf"

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type hints -type hints_seen -type hints_skb -type hints_left -type hints_meta -type hint_source test ../../../bpf/test/hints_test.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// Seen is what a program read of a packet.
type Seen = testHintsSeen

// SKB is what tc had of it.
type SKB = testHintsSkb

// Left is what tc found in front of it.
type Left = testHintsLeft

// Meta is what the program at XDP of an agent leaves in front of a frame.
type Meta = testHintsMeta

// Load reads the object.
func Load() (*ebpf.CollectionSpec, error) { return loadTest() }

// Sources of values.
const (
	Absent   = testHintSourceHINT_ABSENT
	Driver   = testHintSourceHINT_DRIVER
	Computed = testHintSourceHINT_COMPUTED
)

// Source is where a value comes from.
type Source = testHintSource

package datapath

import _ "embed"

// The compiled programs are not in git (docs/decisions/generated-programs.md). The
// name of the file below is what the go command reports where they are missing.
//
//go:generate touch run-make-build_see-README
//go:embed run-make-build_see-README
var _ string

// The target bpf has no build constraint: the Go types exist for every processor.
// The objects are little-endian; internal/kernel refuses them elsewhere.

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type flow_slot -type flow_extra -type flow_set -type flow_extra_set -type flow_evicted -type packet -type flow_batch -type table_stats -type count_key -type count_value -type count_cache -type count_slot -type unattributed_key -type unattributed_sum -type reason -type reason_class -type hash_keys -type feature -type direction -type l2 -type tunnel -type opening -type skb_offsets -type meta tc ../../bpf/tc.bpf.c -- -I../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types early ../../bpf/xdp.bpf.c -- -I../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate ../../scripts/pack-object tc early

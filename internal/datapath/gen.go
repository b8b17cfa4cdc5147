package datapath

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type flow_slot -type flow_extra -type flow_set -type flow_extra_set -type flow_evicted -type table_stats -type count_key -type count_value -type unattributed_key -type unattributed_sum -type reason -type reason_class -type direction -type l2 -type tunnel -type meta ingress ../../bpf/ingress.bpf.c -- -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types egress ../../bpf/egress.bpf.c -- -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

package service

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type feature -type hints_version -type hints_verdict -type hint_source -type hints_size -type hints_taker -type hints_queue -type hints_meta abi ../../../bpf/hints/types.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

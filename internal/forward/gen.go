package forward

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type feature -type forward_size -type forward_flag -type forward_result -type forward_port -type forward_count -type forward_memory -type forward_kind -type forward_tag -type forward_key -type forward_way -type forward_offload_at -type dry_flag -type dry_note abi ../../bpf/forward/types.bpf.c -- -I../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types neighbour ../../bpf/forward/neighbour.bpf.c -- -I../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

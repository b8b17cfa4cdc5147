package gate

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type gate_ban_key -type gate_ban -type gate_ban_count -type gate_ban_control -type gate_ban_size -type gate_ban_free -type gate_answers -type gate_cookie_count -type gate_local_key -type gate_detect_size -type gate_watch -type gate_candidate -type gate_window -type gate_sock_offsets abi ../../bpf/gate/defend_types.bpf.c -- -I../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

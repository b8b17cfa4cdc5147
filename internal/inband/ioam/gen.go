package ioam

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type feature -type ioam_control -type ioam_namespace -type ioam_schema -type ioam_iface -type ioam_port -type ioam_node -type ioam_role_key -type ioam_count_key -type count_value -type ioam_time -type ioam_role -type ioam_border -type ioam_size -type ioam_reason -type ioam_reason_class abi ../../../bpf/ioam/types.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What transit costs at XDP; see ioam_bench.bpf.c. The program that is measured is the one that is attached:
 * it is the element of bench_next, or the empty one is.
 */
#include "prelude.h"
#include "abi.h"
#include "ioam/option.h"
#include "test/ioam_again.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} bench_next SEC(".maps");

SEC("xdp.frags")
int bench_empty_xdp(struct xdp_md *xdp)
{
	return XDP_PASS;
}

SEC("xdp.frags")
int bench_again_xdp(struct xdp_md *xdp)
{
	int left = xdp->data - xdp->data_meta; /* metadata, by the run before */

	if (!again((void *)(long)xdp->data, (void *)(long)xdp->data_end))
		return XDP_DROP;
	bpf_xdp_adjust_meta(xdp, left);
	bpf_tail_call(xdp, &bench_next, 0);
	return XDP_DROP;
}

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The program at XDP, on a network card that stamps packets, by its own clock: test_age ns before it runs; 0: it
 * does not.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "frame_xdp.h"
#include "gso.h"
#include "extension.h"
#include "parse.h"

volatile __u64 test_age SEC(".data.hint");

/* In place of hints/observe.h. */
static __always_inline __u64 frame_nic_time(struct xdp_md *xdp)
{
	return test_age ? bpf_ktime_get_ns() + 1700000000000000000 - test_age : 0;
}

#include "ioam/ioam.h"
#include "ioam/xdp.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp.frags")
int waymark_xdp(struct xdp_md *xdp)
{
	ioam_xdp(xdp);
	return XDP_PASS;
}

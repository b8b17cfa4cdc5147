// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The program at XDP with its only stage. */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "frame_xdp.h"
#include "test/toy.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp.frags")
int waymark_toy(struct xdp_md *xdp)
{
	toy_count(xdp);
	return XDP_PASS;
}

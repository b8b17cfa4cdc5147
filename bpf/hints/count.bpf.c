// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Counts how often hints are there (waymark hints --for). Only ever loaded bound to a device. */
#include "prelude.h"
#include "hints/hints.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp.frags")
int waymark_hints(struct xdp_md *xdp)
{
	struct hints h;

	hints_read(xdp, &h, HINTS_ALL, true);
	hints_count(&h, HINTS_ALL);
	return XDP_PASS;
}

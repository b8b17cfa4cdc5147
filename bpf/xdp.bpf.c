// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The program at XDP. */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "frame_xdp.h"
#include "hash.h"
#include "gso.h"
#include "extension.h"
#include "parse.h"
#include "count.h"
#include "gate/gate.h"
#include "hints/hints.h"
#include "hints/observe.h"
#include "ioam/ioam.h"
#include "ioam/xdp.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp.frags")
int waymark_xdp(struct xdp_md *xdp)
{
	hints_observe(xdp);
	if (cfg_features & FEATURE_GATE && gate_run(xdp, GATE_HOOK_XDP) == GATE_DROP)
		return XDP_DROP;
	if (cfg_features & FEATURE_IOAM)
		ioam_xdp(xdp);
	return XDP_PASS;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The rules at tc ingress.
 *
 * Input: a frame. Output: what gate_run() says of it. Called by probe.h.
 */
#ifndef WAYMARK_GATE_RUN_TC_H
#define WAYMARK_GATE_RUN_TC_H

/* Verified alone: the program at tc has many other stages. */
__feature(FEATURE_GATE) __noinline __u64 gate_run_tc(frame_ctx *ctx)
{
	return gate_run(ctx, GATE_HOOK_TC);
}

#endif

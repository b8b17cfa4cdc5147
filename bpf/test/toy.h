/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The stage of the walk-through in CONTRIBUTING.md: counts short frames.
 *
 * Input: a frame, at any hook. Output: a count in toy_frames.
 */
#ifndef WAYMARK_TOY_H
#define WAYMARK_TOY_H

#include "element.h"

struct toy_key {
	__u32 iface; /* as in flow_slot */
	__u32 epoch;
};

/* Frames of up to so many bytes are counted. */
const volatile __u32 cfg_toy_longest = 0;

/* Written here, read and deleted by the agent after each epoch. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct toy_key);
	__type(value, __u64);
} toy_frames SEC(".maps");

static __always_inline void toy_count(frame_ctx *ctx)
{
	struct toy_key key = { .iface = cfg_iface + frame_ifindex(ctx), .epoch = current_epoch };
	__u64 none = 0, *n;

	if (frame_len(ctx) > cfg_toy_longest)
		return;
	n = find_or_make(&toy_frames, &key, &none);
	if (n)
		++*n;
}

#endif

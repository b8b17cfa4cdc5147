/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Dropped packets of many flows in turns: the flow of each says what its rule was, so that rules are not asked again. At XDP only.
 *
 * Input: a frame. Output: whether it is dropped, and counted. Called by xdp.bpf.c.
 */
#ifndef WAYMARK_GATE_UNASKED_H
#define WAYMARK_GATE_UNASKED_H

/*
 * Drops a packet whose flow had one about which rules could ask nothing else. Verified alone: a return takes less than many
 * rules. Output: whether it is dropped, and counted.
 */
__feature(FEATURE_GATE) __noinline int gate_drop_unasked(frame_ctx *ctx, __u32 n)
{
	struct gate_place place = { .n = n, .part = bpf_map_lookup_elem(&gate_drop_parts, &n) };

	if (gate_drop_fast(ctx, &place, false, 0, 0))
		return 1;
	if (place.part)
		place.part->known = 0;
	return 0;
}

/* Likewise, where the flow of the packet before was known, its rules took long, and nobody captures. */
static __always_inline bool gate_drop_like_flow(frame_ctx *ctx, const struct gate_place *place)
{
	return place->part && place->part->known && !(place->part->again.came >> 32) &&
	       gate_drop_unasked(ctx, place->n);
}

#endif

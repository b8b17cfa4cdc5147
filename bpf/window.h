/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sequence numbers that arrived lately. Input: how far a number is from the highest one. Output: what
 * it says of lost, reordered and duplicate packets. Bit i of `seen` stands for the number highest - i;
 * `span` is how many bits count, 0 before the first number. Callers: pdm/sequence.h, ioam/edge.h.
 */
#ifndef WAYMARK_WINDOW_H
#define WAYMARK_WINDOW_H

#define SEQUENCE_WINDOW 64 /* numbers remembered: the bits of a word */

/* The highest number moves on by d. */
static __always_inline void window_advance(__u64 *seen, __u8 *span, __u64 d)
{
	if (d >= SEQUENCE_WINDOW) {
		*seen = 1;
		*span = SEQUENCE_WINDOW;
		return;
	}
	*seen = *seen << (d & 63) | 1;
	*span = *span + d < SEQUENCE_WINDOW ? *span + d : SEQUENCE_WINDOW;
}

/* Whether the number d, fewer than the window, before the highest has arrived. */
static __always_inline bool window_has(__u64 seen, __u8 d)
{
	return seen >> (d & 63) & 1;
}

/* It arrives, reordered. Returns what that adds to the lost ones: -1, or those between it and the first. */
static __always_inline __s32 window_late(__u64 *seen, __u8 *span, __u8 d)
{
	__s32 missing = d - *span;

	*seen |= 1ULL << (d & 63);
	if (missing < 0)
		return -1;
	*span = d + 1;
	return missing;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The border of the domain: an interface that has no role for a namespace lets none of its options
 * in or out (RFC 9486 section 4, RFC 9197 section 10).
 *
 * Input: a packet with extension headers, at an interface of the agent. Output: a verdict; options
 * that are only removed are left to remove.h. Called at XDP and at tc, before all else.
 */
#ifndef WAYMARK_IOAM_BORDER_H
#define WAYMARK_IOAM_BORDER_H

/* Takes no packet with headers of which it cannot say that they have no options of the domain. */
__feature(FEATURE_IOAM) __noinline
	int ioam_border_check(frame_ctx *ctx, struct ioam_work *w, __u32 direction)
{
	struct ioam_cut *c = ioam_cut_begin(direction);

	if (!w || !c)
		return IOAM_PASS;
	ioam_cut_plan(ctx, w, c);
	if (c->unread) {
		ioam_count(ctx, direction, IOAM_BORDER_CHAIN, 0);
		return IOAM_BORDER_CHAIN;
	}
	if (!c->barred || (w->port.border == IOAM_BORDER_STRIP && !c->fixed))
		return IOAM_PASS;
	ioam_count(ctx, direction, IOAM_BORDER_DROPPED, c->space);
	return IOAM_BORDER_DROPPED;
}

/* IOAM_PASS, or the reason to drop the packet. */
static __always_inline int ioam_border(frame_ctx *ctx, struct ioam_work *w, __u32 direction)
{
	return ioam_is_border(w) ? ioam_border_check(ctx, w, direction) : IOAM_PASS;
}

#endif

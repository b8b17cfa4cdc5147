/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The end of a trace that is alone in its packet, as nearly all are.
 *
 * Input: a packet at tc ingress, of which ioam_fill_usual() has found and filled the trace. Output: the trace in its
 * path, as ioam_collect() counts it; or nothing, and the general code reads it. Called by ingress.h.
 */
#ifndef WAYMARK_IOAM_END_H
#define WAYMARK_IOAM_END_H

/* The trace at w->at. 0: others have to read it, or it is in no path. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_end(struct __sk_buff *skb, struct ioam_work *w)
{
	struct ioam_walk *walk = IOAM_CPU(struct ioam_walk, walk);
	struct ioam_trace *t;
	__u32 len;

	if (!w || !walk)
		return 0;
	len = w->len + 2;
	if (len < IOAM_HEADER || len > IOAM_OPTION_MAX ||
	    frame_load(skb, w->at, walk->word, ioam_bounded(len, IOAM_OLD_MAX)))
		return 0;
	t = (void *)walk->word;
	walk->len = len;
	walk->at = IOAM_FIRST_WORD + (bpf_ntohs(t->lengths) & IOAM_REMAINING);
	if (ioam_walk_hops(walk) != IOAM_PASS || !walk->hops)
		return 0;
	return ioam_path_add(skb, w) == IOAM_PASS;
}

#endif

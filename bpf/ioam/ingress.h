/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * IOAM at tc ingress: all that XDP has not done.
 *
 * Input: a packet that arrives. Output: a verdict, and the packet with this node's data.
 */
#ifndef WAYMARK_IOAM_INGRESS_H
#define WAYMARK_IOAM_INGRESS_H

/* What XDP left, if it has run. */
static __always_inline bool ioam_handed(struct __sk_buff *skb, __u64 *stamp)
{
	const struct hints_meta *m;

	barrier(); /* the bounds are read here: a copy of half a register would be no pointer */
	m = hints_meta_at((void *)(long)skb->data_meta, (void *)(long)skb->data);
	if (!m || !(m->own & HINTS_OWN_IOAM) || m->owner != ioam_owner(skb))
		return false;
	if (m->own & HINTS_OWN_WRITTEN)
		*stamp = m->time ?: IOAM_STAMP_NO_TIME;
	if (m->own & HINTS_OWN_SETTLED)
		*stamp |= IOAM_STAMP_SETTLED;
	if (m->own & HINTS_OWN_DROP)
		*stamp |= IOAM_STAMP_DROP;
	return true;
}

/*
 * A packet that arrives. Verified alone, and the verdict is kept in memory until ioam_finish(): what is live
 * here would cost the stages between them registers, on interfaces of no node, too.
 */
__feature(FEATURE_IOAM) __noinline int ioam_ingress(struct __sk_buff *skb)
{
	__u32 l3;
	struct ioam_work *w = IOAM_CPU(struct ioam_work, work);
	bool drop = false, done;
	__u64 stamp = 0;
	__u8 next;

	if (!w)
		return 0;
	w->drop = w->removes = w->pdm = w->returned = false;
	w->reported = 0;
	w->alone = 0;
	next = ioam_next_header(skb, &l3);
	if (!is_extension(next, true))
		return 0;
	done = ioam_handed(skb, &stamp);
	if (!done && next == IPPROTO_HOPOPTS && ioam_fill_usual(skb, w) == IOAM_WRITTEN) {
		if (w->alone && ioam_end(skb, w)) {
			w->removes = true;
			return 0;
		}
		w->alone = 0;
		done = true;
		stamp = ioam_stamp_of(w);
		if (!ioam.removes[ioam.copy & 1])
			stamp |= IOAM_STAMP_SETTLED;
	}
	if (stamp & IOAM_STAMP_SETTLED) {
		ioam_hand_on(skb, stamp);
		return 0;
	}
	w = ioam_begin(skb, l3);
	if (!w)
		return 0;
	if (!done) {
		drop = ioam_border(skb, w, DIRECTION_INGRESS) != IOAM_PASS;
		if (!drop && next == IPPROTO_HOPOPTS)
			drop = ioam_transit(skb, w) != IOAM_PASS;
		stamp = ioam_stamp_of(w);
	}
	drop |= stamp & IOAM_STAMP_DROP ? true : false;
	if (!drop && next == IPPROTO_HOPOPTS)
		stamp = ioam_direct_stamp(skb, w, stamp);
	if (!drop && (ioam.removes[w->copy & 1] || w->returned)) {
		if (next == IPPROTO_HOPOPTS)
			ioam_collect(skb, w);
		ioam_edges(skb, w, next);
	}
	if (w->returned) {
		ioam_stat(IOAM_RETURNED);
		drop = true;
	}
	w->drop = drop;
	w->removes = !drop && (ioam.removes[w->copy & 1] || w->port.border == IOAM_BORDER_STRIP);
	ioam_hand_on(skb, stamp);
	return 0;
}

/* What is left to do once the packet is accounted. */
static __always_inline int ioam_finish(struct __sk_buff *skb, int verdict)
{
	struct ioam_work *w = IOAM_CPU(struct ioam_work, work);

	if (!w || verdict == TC_ACT_SHOT)
		return verdict;
	if (w->drop)
		return TC_ACT_SHOT;
	return w->removes ? ioam_remove(skb) : verdict;
}

#endif

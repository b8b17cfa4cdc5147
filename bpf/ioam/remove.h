/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Removes options from a packet: those of namespaces that end at this node, at tc ingress, and those
 * that a border bars, at either hook. PDM's option goes with them.
 *
 * Input: a packet with extension headers, when all is known of it: this node has written its data,
 * and the packet was accounted as it was on the wire. Output: the packet without these options; or
 * as it was, and a reason counted; or a verdict. What has to go is found in cut.h, and a packet
 * shrinks once.
 */
#ifndef WAYMARK_IOAM_REMOVE_H
#define WAYMARK_IOAM_REMOVE_H

/* Changes the packet as planned. IOAM_PASS, or why not; only after IOAM_BROKEN has it changed. */
static __always_inline int ioam_cut_apply(struct __sk_buff *skb, const struct ioam_work *w,
					  struct ioam_cut *c)
{
	struct space gap = { .at = c->start, .bytes = c->from - c->to };
	__u32 l3 = w->l3;
	int rc;

	if (c->fixed || !c->from || space_framed(skb, l3) != SPACE_OK ||
	    space_removable(skb, l3, c->start, gap.bytes) != SPACE_OK ||
	    bpf_skb_pull_data(skb, c->start + c->from))
		return IOAM_NOT_REMOVED;
	if (gap.bytes) {
		rc = space_take(skb, l3, &gap, c->first, SPACE_SHRINK);
		if (rc != SPACE_OK)
			return rc == SPACE_BROKEN ? IOAM_BROKEN : IOAM_NOT_REMOVED;
	} else if (!space_put(skb, l3 + offsetof(struct ipv6hdr, nexthdr), &c->first, 1)) {
		return IOAM_BROKEN;
	}
	if (c->to && !space_put(skb, c->start, c->bytes, ioam_cut_bounded(c->to)))
		return IOAM_BROKEN;
	return IOAM_PASS;
}

/* Counts what was done, or not. Returns the verdict. */
static __always_inline int ioam_cut_done(struct __sk_buff *skb, const struct ioam_cut *c, int rc)
{
	if (rc != IOAM_PASS) {
		if (c->barred)
			rc = IOAM_BORDER_DROPPED;
		ioam_count(skb, c->direction, rc, c->space);
		if (c->pdm)
			pdm_count(skb, DIRECTION_INGRESS, PDM_NOT_STRIPPED);
		return rc >= IOAM_FIRST_DROPPED ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	}
	if (c->pdm)
		PDM_STAT_ADD(stripped, 1);
	if (c->barred)
		ioam_count(skb, c->direction, IOAM_BORDER_STRIPPED, c->space);
	if (c->gone)
		ioam_stats_add(IOAM_REMOVED, c->gone);
	return TC_ACT_UNSPEC;
}

/* What PDM leaves to ioam_remove(): one packet shrinks once. False: nothing. */
static __always_inline bool ioam_take_pdm(bool found)
{
	struct ioam_work *w = IOAM_CPU(struct ioam_work, work);

	if (!w || !w->removes)
		return false;
	w->pdm = found && cfg_pdm_strip;
	return true;
}

/* Offset of PDM's option. */
static __always_inline __u32 ioam_pdm_option(void)
{
	struct pdm_work *work = get_work();

	if (!work)
		return 0;
	return work->cut.offset + (work->cut.joined ? 0 : 2);
}

/*
 * To tc egress. TCP of a sender on the same machine, in another network namespace, gives its packets a delivery time, too,
 * which would be taken for a stamp.
 */
static __always_inline void ioam_hand_on(struct __sk_buff *skb, __u64 stamp)
{
	stamp &= ~(IOAM_STAMP_DROP | IOAM_STAMP_SETTLED);
	if (!cfg_ioam_stamp)
		return;
	if (stamp)
		bpf_skb_set_tstamp(skb, stamp, BPF_SKB_TSTAMP_DELIVERY_MONO);
	else if (skb->tstamp_type == BPF_SKB_TSTAMP_DELIVERY_MONO)
		bpf_skb_set_tstamp(skb, 0, BPF_SKB_TSTAMP_UNSPEC);
}

/* The receive time is for the egress of a trace, which is gone. */
static __always_inline void ioam_unstamp(struct __sk_buff *skb, const struct ioam_work *w)
{
	__u8 next;

	if (cfg_ioam_stamp && skb->tstamp_type == BPF_SKB_TSTAMP_DELIVERY_MONO &&
	    !frame_load(skb, w->l3 + offsetof(struct ipv6hdr, nexthdr), &next, sizeof(next)) &&
	    next != IPPROTO_HOPOPTS)
		bpf_skb_set_tstamp(skb, 0, BPF_SKB_TSTAMP_UNSPEC);
}

/*
 * The header that end.h has read: it goes as a whole. Less is to be checked than in ioam_cut_apply(): the kernel has found
 * the IPv6 header of a received frame where it was read, and what is left of the packet is long enough.
 */
static __always_inline int ioam_remove_alone(struct __sk_buff *skb, const struct ioam_work *w)
{
	struct space gap = { .at = w->l3 + sizeof(struct ipv6hdr), .bytes = w->alone };
	int rc = space_take(skb, w->l3, &gap, w->next, SPACE_SHRINK);

	if (rc == SPACE_OK) {
		ioam_stat(IOAM_REMOVED);
		return TC_ACT_UNSPEC;
	}
	if (rc == SPACE_REFUSED) /* it may be forwarded, and lacks what the egress knows */
		ioam_hand_on(skb, ioam_stamp_of(w));
	ioam_count(skb, DIRECTION_INGRESS, rc == SPACE_REFUSED ? IOAM_NOT_REMOVED : IOAM_BROKEN,
		   w->space);
	return rc == SPACE_REFUSED ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* The plan for other headers, once a tunnel has ended. IOAM_PASS, or a reason. */
static __always_inline int ioam_cut_headers(struct __sk_buff *skb, struct ioam_work *w,
					    struct ioam_cut *c)
{
	int rc;

	if (cfg_features & FEATURE_PDM && w->pdm)
		c->pdm = ioam_pdm_option();
	ioam_cut_plan(skb, w, c);
	rc = c->gone ? ioam_unwrap(skb, w, c) : IOAM_PASS;
	if (rc != IOAM_UNWRAPPED)
		return rc;
	ioam_stat(IOAM_UNWRAPPED);
	ioam_stats_add(IOAM_REMOVED, c->gone);
	c->pdm = 0;
	ioam_cut_plan(skb, w, c);
	return IOAM_PASS;
}

/* At tc ingress, where ioam_ingress() found something to do. */
__feature(FEATURE_IOAM) __noinline int ioam_remove(struct __sk_buff *skb)
{
	struct ioam_work *w = IOAM_CPU(struct ioam_work, work);
	struct ioam_cut *c;
	int rc, verdict;

	if (!w)
		return TC_ACT_UNSPEC;
	if (w->alone)
		return ioam_remove_alone(skb, w);
	c = ioam_cut_begin(DIRECTION_INGRESS);
	if (!c)
		return TC_ACT_UNSPEC;
	rc = ioam_cut_headers(skb, w, c);
	if (rc == IOAM_PASS && (c->gone || c->barred || c->pdm))
		rc = ioam_cut_apply(skb, w, c);
	verdict = ioam_cut_done(skb, c, rc);
	ioam_unstamp(skb, w);
	return verdict;
}

/* At tc egress: what the border bars. Not TC_ACT_UNSPEC: the verdict. */
static __always_inline int ioam_remove_barred(struct __sk_buff *skb, struct ioam_work *w)
{
	struct ioam_cut *c = ioam_cut_begin(DIRECTION_EGRESS);

	if (!c || !ioam_cut_plan(skb, w, c))
		return TC_ACT_UNSPEC;
	return ioam_cut_done(skb, c, ioam_cut_apply(skb, w, c));
}

#endif

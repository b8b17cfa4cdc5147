/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * IOAM at tc ingress: all that XDP has not done.
 *
 * Input: a packet that arrives. Output: a verdict, and the packet with this node's data.
 */
#ifndef WAYMARK_IOAM_INGRESS_H
#define WAYMARK_IOAM_INGRESS_H

/* What XDP left, if it has run. */
static __always_inline bool ioam_handed(struct __sk_buff *skb, __u64 *stamp, bool *drop)
{
	struct ioam_meta *m = (void *)(long)skb->data_meta;

	if ((void *)(m + 1) > (void *)(long)skb->data || m->cookie != cfg_ioam_cookie ||
	    m->iface != iface_of(skb))
		return false;
	*stamp = m->stamp & ~IOAM_STAMP_DROP;
	*drop = m->stamp & IOAM_STAMP_DROP;
	return true;
}

/*
 * A packet that arrives. Verified alone, and the verdict is kept in memory until ioam_drops(): what is live
 * here would cost the stages between them registers, on interfaces of no node, too.
 */
__feature(FEATURE_IOAM) __noinline int ioam_ingress(struct __sk_buff *skb)
{
	__u32 zero = 0, l3;
	struct ioam_work *w = bpf_map_lookup_elem(&ioam_works, &zero);
	bool drop = false;
	__u64 stamp = 0;

	if (!w)
		return 0;
	w->drop = false;
	if (!ioam_handed(skb, &stamp, &drop)) {
		if (!ioam_has_options(skb, &l3))
			return 0;
		w = ioam_begin(skb, l3);
		if (!w)
			return 0;
		drop = ioam_transit(skb, w) != IOAM_PASS;
		stamp = ioam_stamp_of(w);
	}
	w->drop = drop;
	if (!drop && ioam.node[ioam.copy & 1].removes)
		ioam_collect(skb);
	if (stamp && cfg_ioam_stamp)
		bpf_skb_set_tstamp(skb, stamp, BPF_SKB_TSTAMP_DELIVERY_MONO);
	return 0;
}

/* Whether the packet is to be dropped. */
static __always_inline bool ioam_drops(void)
{
	__u32 zero = 0;
	struct ioam_work *w = bpf_map_lookup_elem(&ioam_works, &zero);

	return w && w->drop;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * IOAM at XDP: transit in place, before a packet becomes an skb.
 *
 * Input: a frame. Output: the frame with this node's data, and struct hints_meta in front of it,
 * which has a verdict for tc: a packet that is dropped there is in the flows. Where nothing can be
 * left in front of a frame, it stays as it is, and tc does the work.
 */
#ifndef WAYMARK_IOAM_XDP_H
#define WAYMARK_IOAM_XDP_H

/* Leaves in front of the frame what tc has to know. */
static __always_inline void ioam_leave(struct xdp_md *xdp, __u64 received, __u8 own)
{
	struct hints_meta *m = (void *)(long)xdp->data_meta;

	if ((void *)(m + 1) > (void *)(long)xdp->data) /* unreachable; satisfies the verifier */
		return;
	*m = (struct hints_meta){
		.time = received,
		.own = own | HINTS_OWN_IOAM,
		.owner = ioam_owner(xdp),
		.version = HINTS_META_1,
	};
}

/* A packet for which nothing is prepared, with space in front of it, which is used unless 0. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_xdp_general(struct xdp_md *xdp, __u32 l3)
{
	struct ioam_work *w = ioam_begin(xdp, l3);
	__u8 own = 0;

	if (!w) {
		bpf_xdp_adjust_meta(xdp, sizeof(struct hints_meta));
		return 0;
	}
	if (ioam_border(xdp, w, DIRECTION_INGRESS) != IOAM_PASS ||
	    ioam_transit(xdp, w) != IOAM_PASS)
		own = HINTS_OWN_DROP;
	if (w->written)
		own |= HINTS_OWN_WRITTEN;
	ioam_leave(xdp, w->written ? w->received : 0, own);
	return 1;
}

/* A packet for which p is prepared, with space in front of it; false: nothing was done. */
static __always_inline bool ioam_xdp_usual(struct xdp_md *xdp, struct ioam_prepared *p,
					   const struct ioam_usual *u)
{
	__u8 own = p->leaves ? HINTS_OWN_WRITTEN : 0;
	__u64 received = 0;
	__be32 fraction = 0;

	if (p->timed) {
		received = ioam_arrival(xdp);
		fraction = ioam_time_of(p, received);
	}
	if (!ioam_put_usual(xdp, p, u, fraction))
		return false;
	ioam_stat(IOAM_WRITTEN);
	ioam_leave(xdp, received, p->settled ? own | HINTS_OWN_SETTLED : own);
	return true;
}

/* true: struct hints_meta is in front of the frame. */
static __always_inline bool ioam_xdp(struct xdp_md *xdp)
{
	struct ioam_prepared *p = NULL;
	struct ioam_usual u;
	__u32 l3 = 0;

	if (ioam_usual(xdp, &u))
		p = ioam_prepared_for(&u);
	if (!p && !ioam_has_options(xdp, &l3))
		return false;
	if (bpf_xdp_adjust_meta(xdp, -(int)sizeof(struct hints_meta)))
		return false;
	if (p && ioam_xdp_usual(xdp, p, &u))
		return true;
	return ioam_xdp_general(xdp, p ? IOAM_USUAL_L3 : l3);
}

#endif

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

/* true: struct hints_meta is in front of the frame. */
static __always_inline bool ioam_xdp(struct xdp_md *xdp)
{
	__u32 l3;
	struct ioam_work *w = SCRATCH(struct ioam_work, ioam_work);
	__u8 own = HINTS_OWN_IOAM;
	struct hints_meta *m;

	if (!w || !ioam_has_options(xdp, &l3) || bpf_xdp_adjust_meta(xdp, -(int)sizeof(*m)))
		return false;
	if (ioam_fill_usual(xdp, w) == IOAM_WRITTEN) {
		if (!ioam.node[ioam.copy & 1].removes)
			own |= HINTS_OWN_SETTLED;
	} else if (!ioam_begin(xdp, l3)) {
		bpf_xdp_adjust_meta(xdp, sizeof(*m));
		return false;
	} else if (ioam_border(xdp, w, DIRECTION_INGRESS) != IOAM_PASS ||
		   ioam_transit(xdp, w) != IOAM_PASS) {
		own |= HINTS_OWN_DROP;
	}
	m = (void *)(long)xdp->data_meta;
	if ((void *)(m + 1) > (void *)(long)xdp->data) /* unreachable; satisfies the verifier */
		return false;
	*m = (struct hints_meta){ .version = HINTS_META_1, .owner = ioam_owner(xdp) };
	if (w->written) {
		own |= HINTS_OWN_WRITTEN;
		m->time = w->received;
	}
	m->own = own;
	return true;
}

#endif

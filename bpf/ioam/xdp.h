/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * IOAM at XDP: transit in place, before a packet becomes an skb.
 *
 * Input: a frame. Output: the frame with this node's data, and struct ioam_meta in front of it,
 * which has a verdict for tc: a packet that is dropped there is in the flows. Where nothing can be
 * left in front of a frame, it stays as it is, and tc does the work.
 */
#ifndef WAYMARK_IOAM_XDP_H
#define WAYMARK_IOAM_XDP_H

static __always_inline void ioam_xdp(struct xdp_md *xdp)
{
	struct ioam_work *w;
	struct ioam_meta *m;
	__u64 stamp;
	__u32 l3;

	if (!ioam_has_options(xdp, &l3))
		return;
	w = ioam_begin(xdp, l3);
	if (!w || bpf_xdp_adjust_meta(xdp, -(int)sizeof(*m)))
		return;
	stamp = ioam_border(xdp, w, DIRECTION_INGRESS) == IOAM_PASS &&
				ioam_transit(xdp, w) == IOAM_PASS
			? 0
			: IOAM_STAMP_DROP;
	stamp |= ioam_stamp_of(w);
	m = (void *)(long)xdp->data_meta;
	if ((void *)(m + 1) > (void *)(long)xdp->data)
		return;
	m->stamp = stamp;
	m->cookie = cfg_ioam_cookie;
	m->iface = iface_of(xdp);
}

#endif

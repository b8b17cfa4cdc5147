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
	__u32 zero = 0, l3;
	struct ioam_work *w = bpf_map_lookup_elem(&ioam_works, &zero);
	struct ioam_meta *m;
	__u64 stamp = 0;

	if (!w || !ioam_has_options(xdp, &l3) || bpf_xdp_adjust_meta(xdp, -(int)sizeof(*m)))
		return;
	if (ioam_fill_usual(xdp, w) == IOAM_WRITTEN) {
		if (!ioam.node[ioam.copy & 1].removes)
			stamp = IOAM_STAMP_SETTLED;
	} else if (!ioam_begin(xdp, l3)) {
		bpf_xdp_adjust_meta(xdp, sizeof(*m));
		return;
	} else if (ioam_border(xdp, w, DIRECTION_INGRESS) != IOAM_PASS ||
		   ioam_transit(xdp, w) != IOAM_PASS) {
		stamp = IOAM_STAMP_DROP;
	}
	stamp |= ioam_stamp_of(w);
	m = (void *)(long)xdp->data_meta;
	if ((void *)(m + 1) > (void *)(long)xdp->data)
		return;
	m->stamp = stamp;
	m->cookie = cfg_ioam_cookie;
	m->iface = iface_of(xdp);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What is known of a captured packet at XDP besides its bytes. Called by capture.h. */
#ifndef WAYMARK_GATE_CAPTURE_XDP_H
#define WAYMARK_GATE_CAPTURE_XDP_H

static __always_inline void gate_capture_hints(frame_ctx *xdp, struct gate_packet *p)
{
	struct hints h;

	p->queue = xdp->rx_queue_index;
	hints_read(xdp, &h, HINTS_ALL, cfg_features & FEATURE_HINTS);
	if (h.source[HINT_TIME] != HINT_COMPUTED) {
		p->received = h.time;
		p->received_source = h.source[HINT_TIME];
	}
	p->hash = h.hash;
	p->hash_l4 = h.hash_l4;
	p->hash_source = h.source[HINT_HASH];
	/* A tag among the bytes is no hint. */
	if (h.source[HINT_VLAN] == HINT_HARDWARE || h.source[HINT_VLAN] == HINT_DRIVER) {
		p->tag_proto = bpf_ntohs(h.vlan_proto);
		p->tag_tci = h.vlan_tci;
		p->tag_source = h.source[HINT_VLAN];
	}
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What is known of a captured packet at tc besides its bytes. Called by capture.h. */
#ifndef WAYMARK_GATE_CAPTURE_TC_H
#define WAYMARK_GATE_CAPTURE_TC_H

#include "hints/abi.h"

static __always_inline void gate_capture_hints(frame_ctx *skb, struct gate_packet *p)
{
	p->queue = skb->queue_mapping ? skb->queue_mapping - 1 : 0;
	p->received = frame_nic_time(skb);
	p->received_source = p->received ? HINT_HARDWARE : HINT_ABSENT;
	p->hash = skb->hash;
	p->hash_source = p->hash ? HINT_DRIVER : HINT_ABSENT;
	if (skb->vlan_present) {
		p->tag_proto = bpf_ntohs(skb->vlan_proto);
		p->tag_tci = skb->vlan_tci;
		p->tag_source = HINT_DRIVER;
	}
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What is known of a packet that may be forwarded, in the working memory of a CPU. */
#ifndef WAYMARK_FORWARD_VIEW_H
#define WAYMARK_FORWARD_VIEW_H

/* Interfaces by their index, but for out. */
struct forward_view {
	struct bpf_fib_lookup fib;
	struct bpf_fib_lookup back; /* to the source */
	__u32 total; /* bytes of the packet, by its header */
	__u32 place; /* of the port where it arrived, in forward_memory.ports */
	__u32 len; /* of the frame */
	__u32 dry; /* RUN_DRY, and what is to be in its note */
	__u32 generation; /* of the kernel's tables: see known.h */
	__u32 flags; /* enum forward_flag: of that port, and of the interface that routes */
	__u32 link; /* bytes in front of the IP header */
	__u32 device; /* the interface that routes it */
	__u32 scope; /* where routes are looked up: that interface, or its VRF */
	__u32 out; /* where it leaves, as flow_slot.iface */
	struct forward_tag in; /* of the frame as it came, in it or not */
	struct forward_tag leaves; /* with which it leaves */
	struct forward_tuple reverse; /* of FORWARD_OFFLOADED: the other direction of the flow */
	struct forward_behind behind; /* likewise: the packet as it leaves */
	struct forward_known_way way; /* where it leaves, of what is not remembered */
};

#endif

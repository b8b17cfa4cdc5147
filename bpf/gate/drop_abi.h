/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Flows of packets that rules dropped, as the programs count them and internal/gate reads them. */
#ifndef WAYMARK_GATE_DROP_ABI_H
#define WAYMARK_GATE_DROP_ABI_H

enum gate_drop_size {
	GATE_DROP_WAYS = 4, /* flows in a set */
	GATE_DROP_SUMS = 64, /* of one CPU in one epoch */
};

/*
 * A flow and the rule that dropped its packets, or the sum of what has no flow of its own: without addresses
 * and ports. Free where packets is 0.
 */
struct gate_drop {
	/* The first 48 bytes are those of flow_slot. */
	FLOW_IDENTITY;
	__u8 proto;
	__u8 tos;
	__u8 ttl;
	__u8 tcp_flags;
	__u32 rule; /* its id */
	__u32 last; /* ticks of the kernel's timer, low 32 bits */
	__u64 packets; /* on the wire, as are the others */
	__u64 bytes;
	__u64 payload;
	__u64 overhead; /* as in flow_extra, from here on */
	__u64 gso_packets;
	__u64 gso_bytes;
	__u32 first;
	__u32 flow_label;
	__u32 vni;
	__u32 ce_packets;
	__u32 fragments;
	__u8 ttl_min;
	__u8 ttl_max;
	__u8 tcp_flags_high;
	__u8 zero;
};

_Static_assert(sizeof(struct gate_drop) == 128, "a flow is two cache lines");
_Static_assert(offsetof(struct gate_drop, rule) == offsetof(struct flow_slot, packets),
	       "the identity is that of a flow");

struct gate_drop_set {
	struct gate_drop way[GATE_DROP_WAYS];
};

/* Of one CPU in one epoch. */
struct gate_drop_part {
	__u32 tick; /* up to which `tokens` is known */
	__u32 tokens; /* new flows that may be kept */
	__u64 zero[7];
	struct gate_drop sum[GATE_DROP_SUMS];
	struct packet packet; /* that is dropped now */
};

#endif

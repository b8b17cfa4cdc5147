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

/* A dropped packet, and how many were like it since its flow has counted it. */
struct gate_again {
	__u64 word[8]; /* of its headers, less what differs between packets of a flow */
	__u64 state; /* gate_state() */
	__u64 packets;
	__u32 last; /* as in gate_drop */
	__u32 frame; /* its bytes; 0: nothing is like it */
	__u32 iface;
	__u32 flow; /* place in gate_drops: set * GATE_DROP_WAYS + way */
	__u32 count; /* element of gate_counts */
	__u32 bytes;
	__u32 payload;
	__u32 overhead;
};

/* Of one CPU in one epoch. */
struct gate_drop_part {
	__u32 tick; /* up to which `tokens` is known */
	__u32 tokens; /* new flows that may be kept */
	__u64 zero[7];
	struct gate_again again;
	__u64 state; /* gate_state() when the packet came, before rules were looked up */
	__u64 zero_too;
	struct gate_drop sum[GATE_DROP_SUMS];
	struct packet packet; /* that is dropped now */
};

#endif

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

/*
 * What was decided about the last packet of a flow, by one rule that drops it: a packet of the flow of which rules can ask nothing else
 * is dropped by the same one.
 */
struct gate_drop_verdict {
	__u32 state; /* of gate_state(), while nobody captures */
	__u16 length;
	__u16 slot; /* of the counters of the rule; 0: nothing is known */
	__u64 asked; /* what else rules may ask: see gate_drop_asked() */
};

struct gate_drop_set {
	struct gate_drop way[GATE_DROP_WAYS];
	struct gate_drop_verdict verdict[GATE_DROP_WAYS];
};

_Static_assert(sizeof(struct gate_drop_set) % 64 == 0, "each begins at a cache line");

/*
 * A dropped packet, and how many were like it since its flow has counted it: of one CPU in one epoch. What packets of IPv4 are
 * compared with is a cache line.
 */
struct gate_again {
	__u64 state; /* gate_state() */
	__u64 head; /* EtherType and the first bytes of IP: GATE_AGAIN_IPV4, GATE_AGAIN_IPV6 */
	__u64 addresses; /* both of IPv4 */
	__u32 upper; /* IPv4: fragment, TTL, protocol; IPv6: next header, hop limit */
	__be32 ports; /* both */
	__u32 iface;
	__u32 frame; /* its bytes; 0: nothing is like it */
	__u64 packets; /* that gate_counts does not have yet */
	__u32 last; /* as in gate_drop */
	__be16 tcp; /* length of the header and flags; 0: another protocol */
	__u16 zero;
	__u64 came; /* gate_state() when the last packet came, before rules were looked up */
	__u64 more[4]; /* both addresses of IPv6 */
	__u64 settled; /* of `packets`, that the flow has: the agent took them */
	__u32 turns; /* odd while `packets` go to gate_counts: the agent reads both again */
	__u32 flow; /* place in gate_drops: set * GATE_DROP_WAYS + way */
	__u32 count; /* element of gate_counts */
	__u32 bytes;
	__u32 payload;
	__u32 overhead;
};

_Static_assert(sizeof(struct gate_again) == 128 && offsetof(struct gate_again, more) == 64,
	       "packets of IPv4 are compared with one cache line");

/* What rules that ask only about protocols and ports of destinations said of the last packet: see gate/quick.h. */
struct gate_memo {
	__u64 state; /* gate_state() */
	__u64 key; /* interface, protocol and port */
	__u64 decision; /* as of gate_run(); 0: there is none */
	__u32 count; /* element of gate_counts */
	__u32 zero;
};

/* Of one CPU in one epoch. */
struct gate_drop_part {
	struct gate_again again;
	struct gate_memo memo;
	__u32 tick; /* up to which `tokens` is known */
	__u32 tokens; /* new flows that may be kept */
	__u32 known; /* the last packet was one that its flow had already: the next may be, too */
	__u32 zero;
	__u64 zero_too[2];
	struct gate_drop sum[GATE_DROP_SUMS];
	struct packet packet; /* that is dropped now */
};

_Static_assert(sizeof(struct gate_drop_part) % 64 == 0, "each begins at a cache line");

#endif

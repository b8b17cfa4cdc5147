/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Bans of sources, as internal/gate writes them and the programs read them. */
#ifndef WAYMARK_GATE_BAN_ABI_H
#define WAYMARK_GATE_BAN_ABI_H

enum gate_ban_size {
	GATE_BAN_LENGTHS = 8, /* of prefixes, by family: each costs a look-up per packet */
};

/* A prefix whose packets are dropped. Addresses as in gate_node, with 0 behind the prefix. */
struct gate_ban_key {
	__u64 high;
	__u64 low;
	__u32 bits;
	__u32 ipv6;
};

struct gate_ban {
	__u64 until; /* CLOCK_MONOTONIC, ns; 0: without end */
	__u32 slot; /* of its counters */
	__u32 zero;
};

/* Of all CPUs. */
struct gate_ban_count {
	__u64 packets;
	__u64 bytes;
};

/* The lengths of prefixes that have bans. Without any, packets cost nothing. */
struct gate_ban_control {
	__u32 used[2]; /* of `bits`, by family; read first */
	__u8 bits[2][GATE_BAN_LENGTHS]; /* GATE_BAN_FREE: none of this length */
};

enum gate_ban_free { GATE_BAN_FREE = 255 };

#endif

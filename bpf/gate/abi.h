/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tables of the gate, as internal/gate/engine writes them and the programs read them.
 *
 * Each dimension of a packet (source, destination, ports, ...) leads to a row: a set of rules, those
 * whose condition about it holds. The rules that match are in the rows of all dimensions.
 */
#ifndef WAYMARK_GATE_ABI_H
#define WAYMARK_GATE_ABI_H

#include "capture_abi.h"

enum gate_size {
	GATE_COPIES = 2, /* of all tables: programs use one, the agent writes the other */
	GATE_GROUPS = 64, /* of words of a row */
	GATE_GROUP_SHIFT = 2, /* words of a group at most, as a power of two */
	GATE_WORDS = GATE_GROUPS << GATE_GROUP_SHIFT,
	GATE_RULES_MAX = 64 * GATE_WORDS,
	GATE_ROWS = 65536, /* of a copy: their numbers have 16 bits */
	GATE_BUCKETS = 512, /* of interfaces */
	GATE_WAYS = 4, /* interfaces in a bucket; sources in a line */
	GATE_LEAF_KEYS = 5,
	GATE_WIDE_KEYS = 2,
	GATE_LINE_WORDS = 8,
	GATE_DEPTH = 33, /* nodes at most: four bits each, and one that compares */
};

/* The counters that are not of a rule. */
enum gate_slot {
	GATE_SLOT_PASSED, /* packets that no rule decided about */
	GATE_SLOT_NOT_IP, /* other frames, which meet no rule */
	GATE_SLOT_FORGOTTEN, /* buckets of sources that were given to other sources before they were full again */
	GATE_SLOT_BANNED, /* packets whose source is banned */
	GATE_SLOT_EXEMPT, /* packets of banned prefixes that an allow list let through to the rules */
	GATE_SLOT_FIRST, /* of a rule: those of both copies have some */
};

/*
 * Rules whose condition about a dimension holds. Of up to 64 rules, `summary` has a bit for each. Of more, it has a bit for
 * each group of words that are not all 0; word n is number first + n of those in gate_lines. Where it has none, there may
 * be words of other rows.
 */
struct gate_row {
	__u64 summary;
	__u32 first;
	__u32 zero;
};

/* Numbers of 16 bits, by page. */
enum gate_number { GATE_SPORT, GATE_DPORT, GATE_LENGTH, GATE_VLAN, GATE_NUMBERS };

/* 256 numbers that share their high byte. */
struct gate_page {
	__u16 row[256];
};

/* What a reference in a trie is to, in its upper bits. */
enum gate_ref {
	GATE_REF_ROW = 0,
	GATE_REF_NODE = 1,
	GATE_REF_LEAF = 2, /* boundaries in the upper 64 bits of an address */
	GATE_REF_WIDE = 3, /* boundaries in all bits */
	GATE_REF_SHIFT = 30,
};

/*
 * Addresses have 128 bits; those of IPv4 are the upper 32 of them. The trie finds between which
 * boundaries an address is. A node goes on by some of its bits. All its boundaries share the bits
 * before these; other addresses are below or above all of them.
 */
struct gate_node {
	__u64 high;
	__u64 low;
	__u8 at; /* bits before; these are within 64 bits that begin at a multiple of 64 */
	__u8 bits;
	__u16 zero;
	__u32 first; /* line of the children: 16 references in each */
	__u32 below;
	__u32 above;
	__u64 mask_high; /* the bits before */
	__u64 mask_low;
	__u64 spare;
};

/* row[n]: of addresses that are not below n of the keys. Unused keys are the largest. */
struct gate_leaf {
	__u64 key[GATE_LEAF_KEYS];
	__u32 row[GATE_LEAF_KEYS + 1];
};

struct gate_wide {
	__u64 high[GATE_WIDE_KEYS];
	__u64 low[GATE_WIDE_KEYS];
	__u32 row[GATE_WIDE_KEYS + 1];
	__u32 zero;
	__u64 spare[2];
};

/* A cache line of a trie, or of words of rows. */
struct gate_line {
	union {
		struct gate_node node;
		struct gate_leaf leaf;
		struct gate_wide wide;
		__u32 child[16];
		__u64 word[GATE_LINE_WORDS];
	};
};

_Static_assert(sizeof(struct gate_line) == 64, "a line of a trie is a cache line");

enum gate_action {
	GATE_PASS = 1,
	GATE_DROP,
	GATE_COUNT,
	GATE_LIMIT,
	GATE_SYNCOOKIE,
	GATE_DETECT,
	GATE_ANSWER, /* of no rule: the frame has become an answer */
	/* From here on, for gate_note(). */
	GATE_SAMPLE, /* one packet of `cost`, for what `marks` says */
	GATE_NO_FLOW,
	GATE_ONLY_FLOW,
};

enum gate_per { GATE_PER_RULE, GATE_PER_SOURCE };

struct gate_rule {
	__u32 id;
	__u16 slot; /* of its counters */
	__u8 action; /* enum gate_action */
	__u8 per; /* enum gate_per */
	/* Of a limit; see gate/limit.h. */
	__u64 full; /* ns in which a bucket fills */
	__u64 cost; /* ns per packet; of GATE_SAMPLE, packets */
	__u64 rate; /* bytes per second */
	__u8 bits4, bits6; /* of a source that has a bucket */
	__u8 bytes; /* bytes are limited, else packets */
	__u8 marks; /* of GATE_SAMPLE: GATE_MARK_SAMPLED or GATE_MARK_TAPPED */
	__u8 zero[4];
};

/* Of one CPU. */
struct gate_count {
	__u64 packets; /* that matched, and were not dropped for that */
	__u64 bytes; /* by the IP header; of the frame where that cannot be read */
	__u64 dropped; /* others */
	__u64 dropped_bytes;
};

/* What a packet may be, before its protocol. */
enum gate_state {
	GATE_STATE_IPV4, /* without a header that can be read */
	GATE_STATE_IPV6,
	GATE_STATE_IPV4_WHOLE,
	GATE_STATE_IPV6_WHOLE,
	GATE_STATE_IPV4_FRAGMENT,
	GATE_STATE_IPV6_FRAGMENT,
	GATE_STATES,
};

enum gate_head {
	GATE_PROTO_NONE = 256,
	GATE_PROTOS = 257, /* head: state * GATE_PROTOS + protocol */
	GATE_HEADS = 6 * GATE_PROTOS,
};

/* TCP flags, or 256 + ICMP type. */
enum gate_sub { GATE_SUB_TYPE = 256, GATE_SUB_NONE = 512, GATE_SUBS = 513 };

enum gate_dscp { GATE_DSCP_NONE = 64, GATE_DSCPS = 65 };

/* Dimensions about which a rule has a condition. */
enum gate_used {
	GATE_USES_HEAD = 1 << 0,
	GATE_USES_SUB = 1 << 1,
	GATE_USES_DSCP = 1 << 2,
	GATE_USES_IFACE = 1 << 3,
	GATE_USES_SRC = 1 << 4,
	GATE_USES_DST = 1 << 5,
	GATE_USES_NUMBER = 1 << 6, /* and up, by enum gate_number */
	GATE_USED = 10, /* bits */
};

/* Of one copy. Rows are numbered within the copy, lines and their words across both. */
struct gate_table {
	__u32 used; /* enum gate_used */
	__u32 row; /* first of this copy */
	__u32 rule;
	__u32 page;
	__u32 has; /* enum gate_has */
	__u32 rules; /* that there are. More than 64: a dimension is used, whatever they say */
	__u64 summary; /* as that of a row that has all rules */
	__u32 group_mask; /* words of a group, a power of two, less one */
	__u32 zero;
	__u32 src[2]; /* tries of IPv4 and IPv6 */
	__u32 dst[2];
	__u32 allow[2]; /* likewise; they find 1 for sources that cannot be banned, and 0 */
	__u16 no_src, no_dst; /* rows of packets without */
	__u16 no_number[GATE_NUMBERS];
	__u16 head[GATE_HEADS];
	__u16 sub[GATE_SUBS];
	__u16 dscp[GATE_DSCPS];
	__u16 pages[GATE_NUMBERS][256];
};

/* An interface whose packets meet the rules. */
struct gate_iface {
	__u32 iface; /* as in flow_slot; 0: none */
	__u16 row;
	__u8 hooks; /* enum gate_hook: where its packets meet them */
	__u8 answers; /* enum gate_answers: how SYNs are answered */
};

/* A copy of a program may have more features than its hook needs. */
enum gate_hook { GATE_HOOK_XDP = 1 << 0, GATE_HOOK_TC = 1 << 1 };

/* What rules that do not decide say of a packet. */
enum gate_mark {
	GATE_MARK_NO_FLOW = 1 << 0, /* there is no flow record of it */
	GATE_MARK_FLOW_KNOWN = 1 << 1, /* the first rule about that has matched */
	GATE_MARK_SAMPLED = 1 << 2,
	GATE_MARK_TAPPED = 1 << 3, /* it goes to a socket of AF_XDP, if one takes it */
};

/* Of a table: rules that there are. */
enum gate_has { GATE_HAS_NO_FLOW = 1 << 0, GATE_HAS_ONLY_FLOW = 1 << 1 };

struct gate_control {
	__u32 copy; /* that programs use: the lowest bit. Counts all changes: see gate/again.h */
	__u32 capture; /* enum gate_capture; 0: nobody captures */
	__u32 capture_snap; /* bytes of a packet at most */
	__u32 zero;
	__u64 capture_cost; /* ns per packet, as in gate_rule */
	__u64 keys[8]; /* random, of the buckets of sources */
	struct gate_table table[GATE_COPIES];
	struct gate_iface iface[GATE_COPIES][GATE_BUCKETS][GATE_WAYS];
};

/* Token buckets of sources: a cache line. */
struct gate_sources {
	struct {
		__u64 source; /* hash of rule and source; 0: free */
		__s64 filled; /* monotonic ns at which the bucket is full */
	} way[GATE_WAYS];
};

#endif

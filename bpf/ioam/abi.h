/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the IOAM stages share with user space. Included by bpf/abi.h. */
#ifndef WAYMARK_IOAM_ABI_H
#define WAYMARK_IOAM_ABI_H

/* IOAM-Opt-Type (RFC 9197 section 4.1). */
enum ioam_type {
	IOAM_PREALLOCATED = 0,
	IOAM_INCREMENTAL = 1,
	IOAM_PROOF = 2,
	IOAM_EDGE = 3,
	IOAM_EXPORT = 4,
};

/* Form of a timestamp in node data (RFC 9197 section 5). */
enum ioam_time {
	IOAM_TIME_POSIX = 0, /* seconds, microseconds */
	IOAM_TIME_PTP = 1, /* seconds, nanoseconds */
	IOAM_TIME_NTP = 2, /* seconds, 2^-32 seconds */
};

/* What an interface is to a namespace; 0: IOAM neither enters nor leaves by it. */
enum ioam_role {
	IOAM_ROLE_INGRESS = 1 << 0,
	IOAM_ROLE_EGRESS = 1 << 1,
};

/* What happens at an interface to options of namespaces for which it has no role. */
enum ioam_border {
	IOAM_BORDER_OFF = 0,
	IOAM_BORDER_DROP = 1, /* the packet is dropped */
	IOAM_BORDER_STRIP = 2, /* they are removed */
};

enum ioam_size {
	IOAM_COPIES = 2, /* of the configuration: one is in use */
	IOAM_NAMESPACE_SHIFT = 8,
	IOAM_NAMESPACES = 1 << IOAM_NAMESPACE_SHIFT, /* slots, most of them empty */
	IOAM_SCHEMAS = 32,
	IOAM_SCHEMA_MAX = 240, /* bytes: 244 fit an option, with the head */
	IOAM_ENDS = 16,
	IOAM_ANSWERED_SLOTS = 64, /* IOAM_INSERTION_SLOTS, which is defined below */
};

/* Addresses with the same first bits. Words are as in memory. */
struct ioam_prefix {
	__u64 address[2];
	__u64 mask[2];
};

/* The node. All ones: no identifier. */
struct ioam_node {
	__u64 wide; /* 56 bits */
	__u32 id; /* 24 bits */
	__u32 hash; /* factor: every namespace has a slot of its own */
	__u32 ends; /* how many of these there are; 0: all may send outer headers that are removed here */
	__u32 zero;
	struct ioam_prefix end[IOAM_ENDS];
};

/* What user space changes while programs run. What each packet needs of the node is in the first cache line. */
struct ioam_control {
	__s64 wall; /* added to the monotonic clock, it gives the time of the node data, ns */
	__u32 copy; /* in use */
	__u32 generation[IOAM_COPIES]; /* of what decides which insertion a flow gets */
	__u32 removes[IOAM_COPIES]; /* some namespace has ioam_namespace.remove */
	__u32 insertions
		[IOAM_COPIES]; /* how many there are; 0: packets that leave stay as they are */
	__u32 raw; /* traces that each CPU reports one by one per second; see path.h */
	__u32 reserved; /* bytes of MTU headroom for insertions */
	__u32 direct_every; /* one in so many packets with a direct export option is exported; 0: none */
	__u32 direct_rate; /* records that each CPU exports per second at most */
	__u32 loopback_every; /* one copy is sent back for so many traces that are filled; 0: none */
	__u32 loopback_rate; /* copies of each CPU per second at most */
	/* By ioam_insertion.slot: when the question was sent that the end of the tunnel answered last. */
	__u64 answered[IOAM_ANSWERED_SLOTS];
	/* Likewise: the longest packet of which it is known lately that it arrives there, if above 1280. */
	__u16 longest[IOAM_ANSWERED_SLOTS];
	struct ioam_node node[IOAM_COPIES];
};

struct ioam_namespace {
	__u64 wide;
	__u32 data;
	__u32 schema_head; /* length and id: the first word of a snapshot */
	__u16 id;
	__u8 known; /* else the slot is empty */
	__u8 remove; /* its options are removed from packets that arrive */
	__u8 snapshot; /* words, with the head */
	__u8 schema; /* index */
	__u16 schema_sum; /* ones' complement sum of the schema's data */
	__u8 proof; /* 1 + index in ioam_proofs; 0: none */
	__u8 incremental; /* its incremental traces grow at this node */
	__u8 zero[6];
};

struct ioam_schema {
	__u8 data[IOAM_SCHEMA_MAX];
	__u8 zero[16]; /* a length of up to 256 stays within */
};

struct ioam_port {
	__u32 wide;
	__u16 id;
	__u8 role; /* enum ioam_role, or of several */
	__u8 exceptions; /* some namespaces have another role: ioam_roles */
	__u8 border; /* enum ioam_border */
	__u8 zero[3];
	/* A bit for each insertion that applies to packets that leave here ... */
	__u32 own; /* ... and that this host makes */
	__u32 forwarded; /* ... and that it received */
};

struct ioam_iface {
	struct ioam_port copy[IOAM_COPIES];
};

/* The queues of an interface, which the agent reads several times a second. */
struct ioam_queue {
	__u64 until; /* when this is too old to be used, monotonic ns */
	__u32 depth; /* bytes that wait to be sent */
	__u32 occupancy; /* bytes of memory that they take; all ones: not known */
};

/* A namespace for which an interface has another role. */
struct ioam_role_key {
	__u32 iface;
	__u16 space;
	__u16 copy;
};

enum ioam_mode {
	IOAM_INLINE = 0, /* into the packet's own extension headers */
	IOAM_IP6IP6 = 1, /* with an outer IPv6 header, which has the options */
};

/*
 * An insertion adds up to two blocks to a packet: options of the Hop-by-Hop header (traces, proof of
 * transit, direct export), and options of the Destination Options header in front of the upper layer
 * (edge to edge). Each has two forms. A new header begins with a Next Header byte, which is filled in,
 * and its length. What is appended to a header that is there begins with its first option; the
 * length of that header grows by it.
 */
enum ioam_form {
	IOAM_HOP_NEW = 0,
	IOAM_HOP_APPENDED,
	IOAM_DEST_NEW,
	IOAM_DEST_APPENDED,
	IOAM_FORMS,
};

/*
 * Both forms of a block are parts of one template: a header of two bytes and two of padding, the
 * options, and four bytes of padding. A new header is the first bytes of it, what is appended begins
 * at the options.
 */
enum ioam_insertion_size {
	IOAM_INSERTIONS = 32, /* in a copy of the configuration: a bit each in a word */
	IOAM_INSERTION_SLOTS = 2 * IOAM_INSERTIONS, /* counts and sampling, across changes */
	IOAM_ADDED_MAX = 11, /* options of an insertion */
	IOAM_BLOCK_MAX = 1024, /* bytes of a form; no more than is left of a packet of 1280 */
	IOAM_BLOCK_HEAD = 4,
	IOAM_PROOFS = 32, /* namespaces with proof of transit, in a copy */
	IOAM_ANSWER_BITS =
		16, /* flows of which it is known which insertion they get; see choose.h */
	IOAM_ANSWERS = 1 << IOAM_ANSWER_BITS,
};

_Static_assert((int)IOAM_ANSWERED_SLOTS == (int)IOAM_INSERTION_SLOTS, "each insertion has a slot");

struct ioam_template {
	__u8 data[IOAM_BLOCK_MAX + IOAM_BLOCK_HEAD];
};

enum ioam_insertion_flags {
	IOAM_INSERTION_USED = 1 << 0, /* else the slot is empty */
	IOAM_INSERTION_SEQUENCE = 1 << 1, /* options have sequence numbers: addresses matter */
	IOAM_INSERTION_PART = 1 << 2, /* some of the packets, not all */
	IOAM_INSERTION_CLOSED = 1 << 3, /* all nodes on the path are the operator's */
	IOAM_INSERTION_ECHO = 1 << 4, /* the agent asks the end of the tunnel whether it is there */
	IOAM_INSERTION_LOOPBACK = 1 << 5, /* a trace has the flag Loopback */
};

/* An option in a template, in which all is complete that does not depend on the packet. */
struct ioam_added {
	__u32 fields; /* Trace-Type as in ioam_trace, E2E-Type, or extension flags */
	__u16 at; /* offset in the template */
	__u16 data; /* trace: offset of this node's data; 0: they do not fit */
	__u16 bytes; /* trace: of these data */
	__u16 sum; /* trace: ones' complement sum of them that makes the option neutral */
	__u8 type; /* enum ioam_type */
	__u8 proof; /* proof of transit: as in ioam_namespace */
	__u16 zero;
};

/* What is added to packets that a policy names. */
struct ioam_insertion {
	__u16 bytes[IOAM_FORMS]; /* of each form, a multiple of 8; 0: there is no such block */
	__u16 template; /* index of the first of two templates; likewise of this element, times two */
	__u16 space; /* namespace of its first option, under which refused packets are counted */
	__u8 mode; /* enum ioam_mode */
	__u8 flags; /* enum ioam_insertion_flags */
	__u8 options[2]; /* in Hop-by-Hop Options, and after them in Destination Options */
	__u32 id; /* of the insertion, across changes of the configuration */
	__u32 slot; /* in ioam_insertion_states, likewise */
	__u32 take; /* so many ... */
	__u32 of; /* ... of so many packets */
	__u32 grows; /* bytes by which nodes on the path make a packet longer at most */
	__u32 zero; /* aligns the addresses */
	struct ioam_added option[IOAM_ADDED_MAX];
	__u8 source[16]; /* IOAM_IP6IP6: of the outer header */
	__u8 destination[16];
};

/* Of an insertion on one CPU; totals since it exists. */
struct ioam_insertion_state {
	__u64 named; /* packets that the policy names, GSO bursts as one */
	__u64 chosen; /* of these, the ones to insert into */
	__u64 inserted; /* packets on the wire with the options */
	__u32 of; /* as in the insertion */
	__u32 take;
	__u32 left; /* packets still to come of `of` */
	__u32 due; /* of these, to be taken */
	__u32 random;
	__u32 zero;
};

/*
 * A series of sequence numbers. A GSO burst has one number, which each of its segments carries; edge.h
 * distinguishes them from duplicates.
 */
struct ioam_sequence_key {
	__u8 source[16];
	__u8 destination[16];
	__u32 insertion; /* ioam_insertion.id */
	__u32 flow; /* direct export: flow id; edge to edge: 0 */
};

/*
 * A node's part in proof of transit (draft-ietf-sfc-proof-of-transit), prepared for Montgomery
 * multiplication with R = 2^64. The prime is odd.
 */
struct ioam_proof {
	__u64 prime;
	__u64 inverse; /* -1/prime modulo R */
	__u64 point; /* (share + poly2) modulo prime */
	__u64 weight; /* LPC * R modulo prime */
	__u64 secret; /* modulo prime */
	__u8 shares; /* the node has a share */
	__u8 verifies; /* it knows the secret: it is the last one */
	__u8 zero[6];
};

/* What was done with an option or, from IOAM_MISALIGNED, why nothing was. */
enum ioam_reason {
	IOAM_WRITTEN = 0, /* this node's data were added */
	IOAM_COMPLETED, /* what only the egress knows was added */
	IOAM_REMOVED, /* the option was removed where its namespace ends */
	IOAM_UNWRAPPED, /* its outer IPv6 header was removed, too: counted once per packet */
	IOAM_PROVEN, /* proof of transit: each node of the path has updated it */
	IOAM_EXPORTED, /* direct export: a record was exported */
	IOAM_LOOPED, /* loopback: the agent got a copy to send back */
	IOAM_RETURNED, /* loopback: a copy of a packet of this node came back, and ends here */
	/* The packet passes as it is, but for the flag Overflow. */
	IOAM_FULL, /* this node's data do not fit: Overflow was set */
	IOAM_OVERFLOWED, /* a node before had set Overflow */
	IOAM_GROW_MTU, /* incremental trace: the packet would exceed the MTU of the link; Overflow was set */
	IOAM_GROW_BURST, /* likewise: a GSO burst whose segments cannot grow */
	IOAM_NOT_GROWN, /* likewise: a fragment, AH, a jumbogram, a tag in the frame, a full header */
	IOAM_GROW_OFF, /* incremental trace: it does not grow at this node */
	IOAM_NAMESPACE_UNKNOWN,
	IOAM_NO_ROLE, /* of the interface, for this namespace */
	IOAM_PROOF_UNKNOWN, /* proof of transit of another type, or too short */
	IOAM_UNPROVEN, /* proof of transit: not each node of the path has updated it */
	IOAM_ADDRESS, /* not inserted: multicast or link-local, which a policy must name itself */
	IOAM_FORWARDED, /* not inserted: forwarded, and only its source may (RFC 8200 section 4) */
	IOAM_TUNNEL_ROUTE, /* not inserted: the route to the end of the tunnel is another one */
	IOAM_UNREADABLE, /* or not writable */
	IOAM_TUNNEL_FROM, /* the outer header stays: who sent it is none of ioam_node.end */
	IOAM_NOT_REMOVED, /* the packet cannot shrink: a fragment, AH, a jumbogram, a tag in the frame */
	/* The packet passes, but its direct export option is answered by no record. */
	IOAM_EXPORT_NOT_SAMPLED, /* it is not one in ioam.direct_export.every */
	IOAM_EXPORT_RATE, /* more per second than ioam.direct_export.rate */
	IOAM_EXPORT_LOST, /* the agent was too slow */
	IOAM_EXPORT_MALFORMED, /* not aligned, or shorter than what it should hold */
	/* The packet passes, but no copy of it is sent back (loopback). */
	IOAM_LOOPBACK_NOT_SAMPLED, /* it would be more than one in ioam.loopback.every */
	IOAM_LOOPBACK_RATE, /* more per second than ioam.loopback.rate */
	IOAM_LOOPBACK_LOST, /* the agent was too slow */
	IOAM_LOOPBACK_TYPE, /* the trace asks for more than hop limit and node id */
	IOAM_LOOPBACK_ADDRESS, /* the source of the packet is no address to which copies can go */
	/* The packet passes without the option. */
	IOAM_BORDER_STRIPPED, /* the interface has no role for the namespace */
	/* The packet passes, but its trace is in no path. */
	IOAM_PATH_MALFORMED, /* its node data do not end with the option */
	IOAM_PATH_LONG, /* more hops than a path has */
	IOAM_PATHS_FULL, /* more paths than ioam.paths allows */
	/* The packet is dropped. */
	IOAM_MISALIGNED, /* the option is not aligned to four bytes */
	IOAM_TRUNCATED, /* the option is shorter than what it should hold */
	IOAM_NODE_LENGTH, /* NodeLen is not what the Trace-Type takes */
	IOAM_BORDER_DROPPED, /* the interface has no role for the namespace */
	IOAM_BORDER_CHAIN, /* at a border, with more headers or options than are read */
	IOAM_CONGESTION, /* the tunnel marked a packet that cannot carry the mark (RFC 6040) */
	IOAM_BROKEN, /* neither as it was nor as it should be; unreachable */
	IOAM_REASON_MAX,
};

enum ioam_reason_class {
	IOAM_FIRST_DROPPED = IOAM_MISALIGNED,
	IOAM_REFUSED = 128, /* from here on nothing was inserted, for an enum mark_reason */
};

struct ioam_count_key {
	__u32 iface;
	__u8 direction;
	__u8 reason;
	__u16 space;
};

#endif

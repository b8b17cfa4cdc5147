/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The node: its configuration, and the data that it adds to a trace.
 *
 * Input: the fields that the trace asks for, and what is known of the packet. Output: the node data,
 * in ioam_work. Called by transit.h and by egress.h.
 */
#ifndef WAYMARK_IOAM_NODE_H
#define WAYMARK_IOAM_NODE_H

#include "scratch.h"

#define NSEC_PER_SEC 1000000000ULL

/* Written by the agent. Slots of both copies, one after the other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_namespace);
} ioam_namespaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_schema);
} ioam_schemas SEC(".maps");

/* Interfaces by flow_slot.iface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct ioam_iface);
} ioam_ifaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ioam_role_key);
	__type(value, __u32);
} ioam_roles SEC(".maps");

#define IOAM_NODE_MAX 128 /* bytes: all fields take 104 */
#define IOAM_OLD_MAX 256 /* bytes of an option */

enum ioam_reported {
	IOAM_TRACED = 1 << 0, /* a trace is in a path */
	IOAM_NUMBERED = 1 << 1, /* an edge-to-edge option was counted */
};

/* Memory for one packet. */
struct ioam_work {
	/* What nearly all packets with a trace need is in the first cache line. */
	__u64 received; /* monotonic ns; 0: not read yet */
	__u32 l3; /* offset of the IPv6 header */
	__u32 at; /* offset of the option */
	__u32 len; /* of its data */
	__u32 written; /* traces that the egress needs to know of */
	__u32 generation; /* of the configuration ... */
	__u16 copy; /* ... and the copy of it */
	__u16 space; /* namespace of the option */
	__u8 hop_limit; /* at egress */
	bool drop;
	bool pdm; /* PDM's option is removed there, too */
	bool removes; /* once the packet is accounted, ioam_remove() has work */
	/* Of a trace alone that ends here: */
	__u8 next; /* header, behind the Hop-by-Hop header, ... */
	__u8 reported; /* enum ioam_reported, of the packet */
	__u16 alone; /* ... whose size this is; 0: it is none such */
	__u8 direct; /* options for direct export so far; in memory, where Linux 6.1 forgets its value between them */
	bool waits; /* a record of one of them waits for the egress */
	bool returned; /* a copy of a packet of this node: see loopback.h */
	bool timed; /* received is known */
	__u64 path; /* that the packet took, if IOAM_TRACED; see path.h */
	__s64 whole; /* ns from its first node to the last; IOAM_NO_TIME */
	struct ioam_numbers numbers; /* of its first edge-to-edge option; see edge.h */
	__u32 grown; /* bytes by which a trace made the packet longer ... */
	__u32 behind; /* ... and offset of what is behind it; see grow.h */
	struct ioam_port port; /* the interface */
	/* Of a packet that something is inserted into: choose.h, write.h, grow.h */
	struct ioam_port out; /* where packets of this interface leave, ... */
	__u32 out_iface;
	__u32 out_generation; /* ... as it was configured */
	struct ioam_port from; /* where it was received */
	__u32 flow; /* id, from the hash of the packet */
	__u8 numbered; /* series of which the packet has its number */
	__u64 pair_number;
	__u64 flow_number;
	struct ioam_sequence_key sequence;
	__be32 data[IOAM_OLD_MAX / 4]
		__attribute__((aligned(64))); /* of this node; fields end within IOAM_NODE_MAX */
	__be32 old[IOAM_OLD_MAX / 4]; /* bytes that they replace */
};

/* A length from 1 to max, a power of two, in a form whose bounds Linux 6.1 sees. */
static __always_inline __u32 ioam_bounded(__u32 n, __u32 max)
{
	n--;
	barrier_var(n);
	return (n & (max - 1)) + 1;
}

/* A namespace that the node knows. */
static __always_inline const struct ioam_namespace *ioam_namespace(__u32 copy, __u16 id)
{
	__u32 slot = (__u32)(id * ioam.node[copy & 1].hash) >> (32 - IOAM_NAMESPACE_SHIFT);
	struct ioam_namespace *ns;

	slot += (copy & 1) << IOAM_NAMESPACE_SHIFT;
	ns = bpf_map_lookup_elem(&ioam_namespaces, &slot);
	return ns && ns->known && ns->id == id ? ns : NULL;
}

/* The role of the interface for a namespace. */
static __always_inline __u32 ioam_role(frame_ctx *ctx, const struct ioam_work *w, __u16 space)
{
	struct ioam_role_key key = { .iface = iface_of(ctx), .space = space, .copy = w->copy };
	__u32 *role = w->port.exceptions ? bpf_map_lookup_elem(&ioam_roles, &key) : NULL;

	return role ? *role : w->port.role;
}

/* Begins with a packet at an interface; NULL: it is none of the node's. */
static __always_inline struct ioam_work *ioam_begin(frame_ctx *ctx, __u32 l3)
{
	__u32 iface = iface_of(ctx);
	struct ioam_work *w = IOAM_CPU(struct ioam_work, work);
	struct ioam_iface *known;

	if (!w)
		return NULL;
	w->copy = ioam.copy & 1;
	/* Before what it stands for: what is prepared of an older one is not used again. */
	w->generation = ioam.generation[w->copy & 1];
	known = bpf_map_lookup_elem(&ioam_ifaces, &iface);
	if (!known)
		return NULL;
	w->port = known->copy[w->copy & 1];
	w->l3 = l3;
	w->received = 0;
	w->written = 0;
	return w;
}

/* Interfaces with a role for all namespaces are no border. */
static __always_inline bool ioam_is_border(const struct ioam_work *w)
{
	return w->port.border && (!w->port.role || w->port.exceptions);
}

static __always_inline __u64 ioam_received(struct ioam_work *w)
{
	if (!w->received)
		w->received = bpf_ktime_get_ns();
	return w->received;
}

/* When a packet that arrives was received. */
static __always_inline __u64 ioam_arrival(frame_ctx *ctx)
{
	__u64 received = 0;

	if (cfg_ioam_nic)
		ioam_nic_received(ctx, &received);
	return received ?: bpf_ktime_get_ns();
}

/* Likewise, once for a packet. */
static __always_inline __u64 ioam_arrived(frame_ctx *ctx, struct ioam_work *w)
{
	if (!w->received)
		w->received = ioam_arrival(ctx);
	return w->received;
}

static __always_inline __u32 ioam_fraction(__u64 ns)
{
	if (cfg_ioam_time == IOAM_TIME_PTP)
		return ns;
	if (cfg_ioam_time == IOAM_TIME_NTP)
		return (ns << 32) / NSEC_PER_SEC;
	return (__u32)ns * 274877907ULL >> 38; /* divided by 1000: exact for 32 bits */
}

/* Without a jump: the verifier would follow both ways at each field. */
static __always_inline __u32 ioam_take(__u32 fields, __u32 bit, __u32 bytes)
{
	__u32 has = fields >> (31 - bit) & 1;

	asm volatile("" : "+r"(has));
	return has * bytes;
}

/* Writes a field where the next one is, which stays there unless the trace asks for this one. */
#define IOAM_PUT(bit, value)                            \
	do {                                            \
		*(__be32 *)(to + n) = bpf_htonl(value); \
		n += ioam_take(fields, bit, 4);         \
	} while (0)
#define IOAM_PUT_WIDE(bit, high, low)                     \
	do {                                              \
		*(__be32 *)(to + n) = bpf_htonl(high);    \
		*(__be32 *)(to + n + 4) = bpf_htonl(low); \
		n += ioam_take(fields, bit, 8);           \
	} while (0)

/* Ones' complement sum of `to`, less that of `from`, folded; n and m: bytes, up to IOAM_OLD_MAX. */
static __always_inline __u32 ioam_difference(const __be32 *from, __u32 n, const __be32 *to, __u32 m)
{
	__u32 sum = bpf_csum_diff((void *)from, from ? ioam_bounded(n, IOAM_OLD_MAX) : 0,
				  (void *)to, ioam_bounded(m, IOAM_OLD_MAX), 0);

	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return bpf_ntohs(sum);
}

static __always_inline __u32 ioam_sum(const __be32 *data, __u32 n)
{
	return ioam_difference(NULL, 0, data, n);
}

/* The rest modulo 0xffff, without a division. */
static __always_inline __u32 ioam_fold(__u64 sum)
{
	sum = (sum >> 32) + (__u32)sum;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum == 0xffff ? 0 : sum;
}

/* The value that brings a sum from `after` back to `before`. */
static __always_inline __u32 ioam_complement(__u32 before, __u32 after)
{
	return ioam_fold(before + 0xffff - ioam_fold(after));
}

/* This node's data, in the order of the bits. Returns their bytes, without a schema's. */
static __always_inline __u32 ioam_fill(frame_ctx *ctx, struct ioam_work *w,
				       const struct ioam_namespace *ns, __u32 fields)
{
	const volatile struct ioam_node *node = &ioam.node[w->copy & 1];
	__u32 n = 0, seconds = 0, fraction = 0, id = w->port.id << 16 | 0xffff;
	void *to = w->data;

	if (fields & (IOAM_TIMES | IOAM_BIT(4))) { /* the egress computes the transit delay */
		__u64 wall = ioam_arrived(ctx, w) + ioam.wall, whole = wall / NSEC_PER_SEC;

		seconds = whole;
		fraction = ioam_fraction(wall - whole * NSEC_PER_SEC);
	}
	IOAM_PUT(0, w->hop_limit << 24 | node->id);
	IOAM_PUT(1, id);
	IOAM_PUT(2, seconds);
	IOAM_PUT(3, fraction);
	IOAM_PUT(4, IOAM_UNKNOWN);
	IOAM_PUT(5, ns->data);
	IOAM_PUT(6, IOAM_UNKNOWN);
	IOAM_PUT(7, 0);
	IOAM_PUT_WIDE(8, w->hop_limit << 24 | (__u32)(node->wide >> 32), (__u32)node->wide);
	IOAM_PUT_WIDE(9, w->port.wide, IOAM_UNKNOWN);
	IOAM_PUT_WIDE(10, (__u32)(ns->wide >> 32), (__u32)ns->wide);
	for (__u32 bit = 11; bit < 22; bit++)
		IOAM_PUT(bit, IOAM_UNKNOWN);
	IOAM_PUT(22, ns->schema_head);
	return n;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Node data that are prepared: what a node adds to traces of one kind differs in few bytes from packet to packet.
 *
 * Input: a packet with one trace alone in its Hop-by-Hop header, as nearly all have it. Output: the packet with this
 * node's data, or with what the egress adds to them; or nothing, and the general code handles the packet
 * (transit.h, egress.h), which also prepares data of a new kind. Checks whose result is the same for each packet of a
 * kind were made then: role, namespace, NodeLen, border.
 */
#ifndef WAYMARK_IOAM_PREPARED_H
#define WAYMARK_IOAM_PREPARED_H

/* Kinds of traces, direct-mapped: of two kinds with one slot, the later one takes it. */
#define IOAM_KINDS_SHIFT 6

/* A kind of traces at an interface, and what was configured when its data were prepared. */
struct ioam_kind {
	__u32 iface;
	__u32 fields;
	__u32 generation;
	__u16 space;
	__be16 lengths; /* NodeLen as the trace must have it */
};

/* Offsets of fields that a trace does not have: behind all others. */
#define IOAM_ABSENT (IOAM_NODE_MAX - 4)

/* What is added to a trace where its packet arrives. */
struct ioam_prepared {
	struct ioam_kind kind;
	__u64 second; /* wall ns at which the second in data began */
	__u32 bytes; /* of data */
	/* Offsets in data. */
	__u8 hop_limit;
	__u8 hop_limit_wide;
	__u8 seconds;
	__u8 fraction;
	__u8 complement;
	bool timed;
	bool neutral;
	__be32 data[IOAM_NODE_MAX / 4];
};

/* Written and read by the programs, on one CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << IOAM_KINDS_SHIFT);
	__type(key, __u32);
	__type(value, struct ioam_prepared);
} ioam_prepared SEC(".maps");

static __always_inline __u32 ioam_kind_slot(const struct ioam_kind *k)
{
	return (k->fields + k->space * 0x85ebca6b + k->iface * 0xc2b2ae35) * 0x9e3779b1 >>
	       (32 - IOAM_KINDS_SHIFT);
}

/* Flags of a trace that the general code handles are in the comparison, and must not be set. */
static __always_inline bool ioam_same_kind(const struct ioam_kind *a, const struct ioam_kind *b)
{
	return a->iface == b->iface && a->fields == b->fields && a->generation == b->generation &&
	       a->space == b->space && a->lengths == b->lengths;
}

/* The kind of the trace that w was last used for; false where nothing is prepared for it. */
static __always_inline bool ioam_kind_of(frame_ctx *ctx, const struct ioam_work *w, __u32 fields,
					 struct ioam_kind *k)
{
	k->iface = iface_of(ctx);
	k->fields = fields;
	k->generation = w->generation;
	k->space = w->space;
	k->lengths = bpf_htons(ioam_node_length(fields) << IOAM_NODELEN_SHIFT);
	return fields && !ioam_is_border(w);
}

static __always_inline __u8 ioam_offset(__u32 fields, __u32 bit, __u32 absent)
{
	return fields & IOAM_BIT(bit) ? ioam_before(fields, bit) : absent;
}

/* Keeps the node data that were written last, of n bytes. */
static __always_inline void ioam_remember(frame_ctx *ctx, const struct ioam_work *w,
					  const struct ioam_namespace *ns, __u32 fields, __u32 n)
{
	struct ioam_prepared *p;
	struct ioam_kind k;
	__u32 slot;

	if (!ioam_kind_of(ctx, w, fields, &k) || (fields & IOAM_SNAPSHOT && ns->snapshot > 1))
		return;
	slot = ioam_kind_slot(&k);
	p = bpf_map_lookup_elem(&ioam_prepared, &slot);
	if (!p || n < 4)
		return;
	p->kind = k;
	p->second = 0;
	p->bytes = n;
	p->hop_limit = ioam_offset(fields, 0, IOAM_ABSENT);
	p->hop_limit_wide = ioam_offset(fields, 8, IOAM_ABSENT);
	p->seconds = ioam_offset(fields, 2, IOAM_ABSENT);
	p->fraction = ioam_offset(fields, 3, IOAM_ABSENT);
	p->complement = ioam_offset(fields, 7, IOAM_ABSENT);
	p->neutral = fields & IOAM_CHECKSUM;
	p->timed = fields & (IOAM_TIMES | IOAM_BIT(4));
	__builtin_memcpy(p->data, w->data, sizeof(p->data));
}

/* A packet whose Hop-by-Hop header begins with a trace. */
struct ioam_alone {
	struct ipv6hdr ip;
	__u8 next;
	__u8 len;
	__be16 padding;
	struct ioam_trace trace;
} __attribute__((packed));

/* What is read of it. */
struct ioam_usual {
	struct ioam_kind kind;
	__u32 at; /* offset of the lengths */
	__u32 list; /* bytes behind the trace header */
	__u32 remaining; /* of these, free ones */
	__u32 lengths;
	__u8 hop_limit;
};

/* Whether a packet has one trace alone, for which data may be prepared, in a frame without tags. */
static __always_inline bool ioam_usual(frame_ctx *ctx, struct ioam_usual *u)
{
	__u32 l3 = cfg_features & FEATURE_NO_LINK ? 0 : sizeof(struct ethhdr), size, rest;
	struct frame f = frame_of(ctx);
	struct ethhdr *eth = f.data;
	struct ioam_alone *a = f.data + l3;
	__be16 *last;

	if ((void *)(a + 1) > f.end || a->ip.version != 6 || a->ip.nexthdr != IPPROTO_HOPOPTS ||
	    (l3 && eth->h_proto != bpf_htons(ETH_P_IPV6)))
		return false;
	if (a->padding != bpf_htons(OPTION_PADN << 8) || a->trace.option != IOAM_OPTION_CHANGES ||
	    a->trace.type != IOAM_PREALLOCATED)
		return false;
	size = (a->len + 1) * 8;
	if (bpf_ntohs(a->ip.payload_len) < size)
		return false;
	/* What is behind the option: nothing, or a padding of four bytes. */
	rest = size - offsetof(struct ioam_alone, trace) + sizeof(a->ip) - 2 - a->trace.len;
	if (rest) {
		last = (void *)&a->next + size - 4;
		if (rest != 4 || (void *)(last + 1) > f.end ||
		    *last != bpf_htons(OPTION_PADN << 8 | 2))
			return false;
	}
	u->list = a->trace.len - (IOAM_HEADER - 2);
	if (a->trace.len < IOAM_HEADER - 2)
		return false;
	u->lengths = bpf_ntohs(a->trace.lengths);
	u->remaining = (u->lengths & IOAM_REMAINING) * 4;
	u->at = l3 + offsetof(struct ioam_alone, trace.lengths);
	u->hop_limit = a->ip.hop_limit;
	u->kind.iface = iface_of(ctx);
	u->kind.fields = bpf_ntohl(a->trace.fields);
	u->kind.generation = ioam.node[ioam.copy & 1].generation;
	u->kind.space = bpf_ntohs(a->trace.space);
	u->kind.lengths = a->trace.lengths & bpf_htons(IOAM_NODELEN | IOAM_OVERFLOW);
	return true;
}

/* Offset of the node data list, behind the trace's lengths. */
#define IOAM_LIST (IOAM_HEADER - offsetof(struct ioam_trace, lengths))

/* The time, into the data. The second is divided once: a division takes 6 ns. */
static __always_inline void ioam_put_time(struct ioam_prepared *p, __u64 received)
{
	__u64 wall = received + ioam.wall;

	if (wall - p->second >= NSEC_PER_SEC) {
		__u64 seconds = wall / NSEC_PER_SEC;

		p->second = seconds * NSEC_PER_SEC;
		p->data[p->seconds / 4 & (IOAM_NODE_MAX / 4 - 1)] = bpf_htonl(seconds);
	}
	p->data[p->fraction / 4 & (IOAM_NODE_MAX / 4 - 1)] =
		bpf_htonl(ioam_fraction(wall - p->second));
}

/* Fills the checksum complement, of data that go to an offset. */
static __always_inline bool ioam_neutral_usual(frame_ctx *ctx, struct ioam_work *w,
					       struct ioam_prepared *p, __u32 to)
{
	__be32 *complement = &p->data[p->complement / 4 & (IOAM_NODE_MAX / 4 - 1)];
	__u32 n = ioam_bounded(p->bytes, IOAM_NODE_MAX);

	*complement = 0;
	if (frame_load(ctx, to, w->old, n))
		return false;
	*complement = bpf_htonl(ioam_complement(n / 4, ioam_difference(w->old, n, p->data, n)));
	return true;
}

/* At XDP through a pointer, which takes 6 ns less; at tc a checksum of the whole packet would be wrong then. */
static __always_inline long ioam_put_lengths(frame_ctx *ctx, __u32 at, __be16 lengths)
{
	struct frame f = frame_of(ctx);

	if (!FRAME_WRITABLE || f.data + at + sizeof(lengths) > f.end)
		return frame_store(ctx, at, &lengths, sizeof(lengths));
	*(__be16 *)(f.data + at) = lengths;
	return 0;
}

#define IOAM_SHORT 64 /* bytes of node data that take less time than a call */

static __always_inline __u32 ioam_fold(__u64 sum)
{
	sum = (sum >> 32) + (__u32)sum;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return (sum >> 16) + (sum & 0xffff);
}

/* The checksum complement, as ioam_neutral_usual(), of words that replace those at `old`. */
static __always_inline void ioam_neutral_short(struct ioam_prepared *p, const __be32 *old, __u32 n)
{
	__be32 *complement = &p->data[p->complement / 4 & (IOAM_NODE_MAX / 4 - 1)];
	__u64 before = 0, after = 0;

	*complement = 0;
#pragma unroll
	for (__u32 i = 0; i < IOAM_SHORT / 4; i++) {
		if (i * 4 >= n)
			continue;
		before += old[i];
		after += p->data[i];
	}
	after = ioam_fold(after) + 0xffff - ioam_fold(before);
	*complement = bpf_htonl(ioam_complement(n / 4, bpf_ntohs(ioam_fold(after))));
}

/* The node data, with their complement. At XDP through a pointer, too. */
static __always_inline long ioam_put_data(frame_ctx *ctx, struct ioam_work *w,
					  struct ioam_prepared *p, __u32 to)
{
	__u32 n = ioam_bounded(p->bytes, IOAM_NODE_MAX);
	struct frame f = frame_of(ctx);
	__be32 *word;

	if (!FRAME_WRITABLE || n > IOAM_SHORT || to > HEADERS_MAX ||
	    f.data + to + IOAM_SHORT > f.end) {
		if (p->neutral && !ioam_neutral_usual(ctx, w, p, to))
			return -1;
		return frame_store(ctx, to, p->data, n);
	}
	word = f.data + to;
	if (p->neutral)
		ioam_neutral_short(p, word, n);
#pragma unroll
	for (__u32 i = 0; i < IOAM_SHORT / 4; i++)
		if (i * 4 < n)
			word[i] = p->data[i];
	return 0;
}

/* A packet that arrives. IOAM_WRITTEN, or IOAM_PASS: nothing was done. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_fill_usual(frame_ctx *ctx, struct ioam_work *w)
{
	struct ioam_prepared *p;
	struct ioam_usual u;
	__u32 slot, to;
	__be16 now;
	__u8 *data;

	if (!w || !ioam_usual(ctx, &u))
		return IOAM_PASS;
	slot = ioam_kind_slot(&u.kind);
	p = bpf_map_lookup_elem(&ioam_prepared, &slot);
	if (!p || !ioam_same_kind(&p->kind, &u.kind) || u.remaining > u.list ||
	    p->bytes > u.remaining)
		return IOAM_PASS;
	data = (void *)p->data;
	data[p->hop_limit & (IOAM_NODE_MAX - 1)] = u.hop_limit - 1;
	data[p->hop_limit_wide & (IOAM_NODE_MAX - 1)] = u.hop_limit - 1;
	w->received = 0;
	if (p->timed)
		ioam_put_time(p, ioam_arrived(ctx, w));
	now = bpf_htons(u.lengths - p->bytes / 4);
	to = u.at + IOAM_LIST + u.remaining - p->bytes;
	if (ioam_put_data(ctx, w, p, to) || ioam_put_lengths(ctx, u.at, now))
		return IOAM_PASS;
	w->written = 1;
	ioam_stat(IOAM_WRITTEN);
	return IOAM_WRITTEN;
}

#endif

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
#define IOAM_KINDS (1 << IOAM_KINDS_SHIFT)

/* A kind of traces at an interface, and what was configured when its data were prepared. */
struct ioam_kind {
	__be64 trace; /* namespace, NodeLen and Trace-Type, as a trace has them */
	__u32 iface;
	__u32 generation;
};

/* What a trace has of its kind; flags that the general code handles are in it, and not set in a kind. */
#define IOAM_KIND_LENGTHS (IOAM_NODELEN | IOAM_OVERFLOW | IOAM_LOOPBACK)
#define IOAM_KIND_TRACE bpf_cpu_to_be64(0xffff0000ffffffffULL | (__u64)IOAM_KIND_LENGTHS << 32)

/* Offsets of fields that a trace does not have: behind all others. */
#define IOAM_ABSENT (IOAM_NODE_MAX - 4)

/* What is added to a trace where its packet arrives. */
struct ioam_prepared {
	struct ioam_kind kind;
	__u64 second; /* wall ns at which the second in data began */
	__u32 sum; /* of data, without hop limits, fraction and complement; as they are in memory */
	__u8 bytes; /* of data */
	/* Offsets in data. */
	__u8 hop_limit;
	__u8 hop_limit_wide;
	__u8 seconds;
	__u8 fraction;
	__u8 complement;
	bool timed;
	bool neutral;
	bool settled; /* no namespace is removed at this node */
	bool leaves; /* the egress needs to know of it: it completes the data, or takes the time */
	bool ends; /* this one is */
	__be32 data[IOAM_NODE_MAX / 4]
		__attribute__((aligned(8))); /* mostly in the same cache line */
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct ioam_prepared) == 192, "whole cache lines");

/* Of all kinds that share a slot; NULL, which only the verifier believes. */
static __always_inline struct ioam_prepared *ioam_prepared_in(__u32 slot)
{
	struct ioam_prepared *all = IOAM_CPU(struct ioam_prepared, prepared);

	_Static_assert(IOAM_KINDS * sizeof(*all) == sizeof(((struct ioam_cpu *)0)->prepared),
		       "its part");
	return all ? &all[slot & (IOAM_KINDS - 1)] : NULL;
}

static __always_inline __u32 ioam_kind_slot(const struct ioam_kind *k)
{
	return (k->trace * 0x9e3779b97f4a7c15 + k->iface * 0xc2b2ae3d27d4eb4f) >>
	       (64 - IOAM_KINDS_SHIFT);
}

static __always_inline bool ioam_same_kind(const struct ioam_kind *a, const struct ioam_kind *b)
{
	return a->trace == b->trace && a->iface == b->iface && a->generation == b->generation;
}

/* The kind of the trace that w was last used for; false where nothing is prepared for it. */
static __always_inline bool ioam_kind_of(frame_ctx *ctx, const struct ioam_work *w, __u32 fields,
					 struct ioam_kind *k)
{
	__u32 lengths = ioam_node_length(fields) << IOAM_NODELEN_SHIFT;

	k->trace = bpf_cpu_to_be64((__u64)(w->space << 16 | lengths) << 32 | fields);
	k->iface = iface_of(ctx);
	k->generation = w->generation;
	return fields && !ioam_is_border(w);
}

static __always_inline __u8 ioam_offset(__u32 fields, __u32 bit, __u32 absent)
{
	return fields & IOAM_BIT(bit) ? ioam_before(fields, bit) : absent;
}

static __always_inline __be32 *ioam_prepared_word(struct ioam_prepared *p, __u8 offset)
{
	return &p->data[offset / 4 & (IOAM_NODE_MAX / 4 - 1)];
}

static __always_inline __u8 *ioam_prepared_byte(struct ioam_prepared *p, __u8 offset)
{
	return (__u8 *)p->data + (offset & (IOAM_NODE_MAX - 1));
}

/* Rare, and verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_prepare_sum(struct ioam_prepared *p)
{
	if (!p)
		return 0;
	*ioam_prepared_byte(p, p->hop_limit) = *ioam_prepared_byte(p, p->hop_limit_wide) = 0;
	*ioam_prepared_word(p, p->fraction) = *ioam_prepared_word(p, p->complement) = 0;
	p->sum = bpf_csum_diff(NULL, 0, p->data, ioam_bounded(p->bytes, IOAM_NODE_MAX), 0);
	return 0;
}

/* Keeps the node data that were written last, of n bytes. Rare, and verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_remember(frame_ctx *ctx, const struct ioam_work *w,
			  const struct ioam_namespace *ns, __u32 fields, __u32 n)
{
	struct ioam_prepared *p;
	struct ioam_kind k;

	if (!w || !ns || !ioam_kind_of(ctx, w, fields, &k) ||
	    (fields & IOAM_SNAPSHOT && ns->snapshot > 1))
		return 0;
	p = ioam_prepared_in(ioam_kind_slot(&k));
	if (!p || n < 4)
		return 0;
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
	p->leaves = p->timed || fields & IOAM_AT_EGRESS;
	p->settled = !ioam.removes[w->copy & 1];
	p->ends = ns->remove;
	__builtin_memcpy(p->data, w->data, sizeof(p->data));
	return ioam_prepare_sum(p);
}

/* A packet whose Hop-by-Hop header begins with a trace. Words are read whole: bytes take an instruction each. */
struct ioam_alone {
	__be64 ip; /* version, class, label; length, next header, hop limit */
	__be64 addresses[4];
	__be64 header; /* next header, length, padding; option up to the type */
	__be64 trace; /* namespace, lengths, Trace-Type */
};

/* What such words have in common with those of all other usual packets: version and next header; ... */
#define IOAM_ALONE_IP bpf_cpu_to_be64(0xf00000000000ff00ULL)
#define IOAM_ALONE_IP_IS bpf_cpu_to_be64(6ULL << 60 | IPPROTO_HOPOPTS << 8)
/* ... padding, option type and IOAM type. */
#define IOAM_ALONE_HEADER bpf_cpu_to_be64(0x0000ffffff0000ffULL)
#define IOAM_ALONE_HEADER_IS                                                          \
	bpf_cpu_to_be64((__u64)OPTION_PADN << 40 | (__u64)IOAM_OPTION_CHANGES << 24 | \
			IOAM_PREALLOCATED)

/* What is read of it. */
struct ioam_usual {
	struct ioam_kind kind;
	__u32 list; /* bytes behind the trace header */
	__u32 remaining; /* of these, free ones */
	__u32 lengths;
	__u32 size; /* of the header */
	__u8 hop_limit;
	__u8 next; /* header, that is behind it */
};

/* Where such a packet has its IPv6 header: the frame has no tags. */
#define IOAM_USUAL_L3 (cfg_features & FEATURE_NO_LINK ? 0 : sizeof(struct ethhdr))
/* And where its trace has the lengths. */
#define IOAM_USUAL_LENGTHS                                    \
	(IOAM_USUAL_L3 + offsetof(struct ioam_alone, trace) + \
	 offsetof(struct ioam_trace, lengths) - offsetof(struct ioam_trace, space))

/* Whether a packet has one trace alone, for which data may be prepared, in a frame without tags. */
static __always_inline bool ioam_usual(frame_ctx *ctx, struct ioam_usual *u)
{
	__u32 l3 = IOAM_USUAL_L3, size, len, rest;
	struct frame f = frame_of(ctx);
	struct ioam_alone *a = f.data + l3;
	struct ethhdr *eth = f.data;
	__u64 ip, header, trace;
	__be16 *last;

	if ((void *)(a + 1) > f.end || (l3 && eth->h_proto != bpf_htons(ETH_P_IPV6)) ||
	    (a->ip & IOAM_ALONE_IP) != IOAM_ALONE_IP_IS ||
	    (a->header & IOAM_ALONE_HEADER) != IOAM_ALONE_HEADER_IS)
		return false;
	ip = bpf_be64_to_cpu(a->ip);
	header = bpf_be64_to_cpu(a->header);
	if (header >> 56 == IPPROTO_NONE) /* it may be a copy for this node: loopback.h */
		return false;
	size = ((header >> 48 & 0xff) + 1) * 8;
	len = header >> 16 & 0xff;
	if ((ip >> 16 & 0xffff) < size || len < IOAM_HEADER - 2)
		return false;
	/* What is behind the option: nothing, or a padding of four bytes. */
	rest = size - 6 - len;
	if (rest) {
		last = (void *)&a->header + size - 4;
		if (rest != 4 || (void *)(last + 1) > f.end ||
		    *last != bpf_htons(OPTION_PADN << 8 | 2))
			return false;
	}
	trace = bpf_be64_to_cpu(a->trace);
	u->kind.trace = a->trace & IOAM_KIND_TRACE;
	u->kind.iface = iface_of(ctx);
	u->kind.generation = ioam.generation[ioam.copy & 1];
	u->list = len - (IOAM_HEADER - 2);
	u->lengths = trace >> 32 & 0xffff;
	u->remaining = (u->lengths & IOAM_REMAINING) * 4;
	u->hop_limit = ip;
	u->size = size;
	u->next = header >> 56;
	return true;
}

/* Offset of the node data list, behind the trace's lengths. */
#define IOAM_LIST (IOAM_HEADER - offsetof(struct ioam_trace, lengths))

/* The fraction of the second, which is in the data then. It is divided once: a division takes 6 ns. */
static __always_inline __be32 ioam_time_of(struct ioam_prepared *p, __u64 received)
{
	__u64 wall = received + ioam.wall, seconds;

	if (wall - p->second >= NSEC_PER_SEC) {
		seconds = wall / NSEC_PER_SEC;
		p->second = seconds * NSEC_PER_SEC;
		*ioam_prepared_word(p, p->seconds) = bpf_htonl(seconds);
		ioam_prepare_sum(p);
	}
	return bpf_htonl(ioam_fraction(wall - p->second));
}

/* What is prepared for a packet; NULL: nothing. */
static __always_inline struct ioam_prepared *ioam_prepared_for(const struct ioam_usual *u)
{
	struct ioam_prepared *p = ioam_prepared_in(ioam_kind_slot(&u->kind));

	if (!p || !ioam_same_kind(&p->kind, &u->kind) || u->remaining > u->list ||
	    p->bytes > u->remaining)
		return NULL;
	return p;
}

/* Offset of the node data of a packet, for which p is prepared. */
static __always_inline __u32 ioam_usual_data(const struct ioam_prepared *p,
					     const struct ioam_usual *u)
{
	return IOAM_USUAL_LENGTHS + IOAM_LIST + u->remaining - p->bytes;
}

/*
 * Prepared data are written without a call: where returns are protected against speculation, each takes 5 ns, and a
 * helper that writes 25. Likewise, no word is read again in another size than it was written in.
 */
#define IOAM_SHORT 64 /* bytes of prepared data that are written here; transit.h writes others */

/* Copies n bytes of prepared data. to: max bytes can be written. */
static __always_inline void ioam_put_words(void *to, const struct ioam_prepared *p, __u32 n,
					   __u32 max)
{
#pragma unroll
	for (__u32 i = 0; i < IOAM_SHORT; i += 8) {
		if (i < max && i + 8 <= n)
			*(__u64 *)(to + i) = *(const __u64 *)(p->data + i / 4);
		else if (i < max && i + 4 <= n)
			*(__be32 *)(to + i) = p->data[i / 4];
	}
}

/* The sum of n bytes of the packet, in words as they are in memory. */
static __always_inline __u64 ioam_sum_words(const void *from, __u32 n)
{
	__u64 all = 0, high = 0, word;

#pragma unroll
	for (__u32 i = 0; i < IOAM_SHORT; i += 8) {
		if (i + 8 <= n) {
			word = *(const __u64 *)(from + i);
			all += word;
			high += word >> 32;
		} else if (i + 4 <= n) {
			all += *(const __u32 *)(from + i);
		}
	}
	return all - (high << 32) +
	       high; /* lower halves, however many carries were lost, and upper ones */
}

/* One word of the node data at `to`, if they have it. It is within them, which only the verifier does not know. */
static __always_inline void ioam_put_word(void *to, const void *end, __u8 offset, __be32 value)
{
	__be32 *at = to + (offset & (IOAM_SHORT - 1));

	if (offset != IOAM_ABSENT && (void *)(at + 1) <= end)
		*at = value;
}

static __always_inline void ioam_put_byte(void *to, const void *end, __u8 offset, __u8 value)
{
	__u8 *at = to + (offset & (IOAM_SHORT - 1));

	if (offset != IOAM_ABSENT && (void *)(at + 1) <= end)
		*at = value;
}

/*
 * The checksum complement of p's data, where they replace n bytes of the packet: ioam_complement() of sums of words as
 * they are in memory, which are less than IOAM_SUM_ZERO.
 */
#define IOAM_SUM_ZERO (0xffffULL << 32)

static __always_inline __be16 ioam_complement_usual(const void *to, const struct ioam_prepared *p,
						    __u32 n, __u32 hop_limit, __be32 fraction)
{
	__u64 sum = IOAM_SUM_ZERO - p->sum;

	barrier_var(sum); /* one after the other takes less stack */
	if (!p->hop_limit)
		sum -= bpf_htons(hop_limit << 8);
	barrier_var(sum);
	if (p->hop_limit_wide != IOAM_ABSENT)
		sum -= bpf_htons(hop_limit << 8);
	if (p->fraction != IOAM_ABSENT)
		sum -= fraction;
	barrier_var(sum);
	return ioam_fold(sum + bpf_htons(n / 4) + ioam_sum_words(to, n));
}

/*
 * Writes prepared data over the free space of a trace; false: nothing was done. At tc, long data and those that a sum
 * over the packet has are left to ioam_store_usual().
 */
static __always_inline bool ioam_put_usual(frame_ctx *ctx, const struct ioam_prepared *p,
					   const struct ioam_usual *u, __be32 fraction)
{
	__u32 offset = ioam_usual_data(p, u), n = p->bytes, hop_limit = u->hop_limit - 1;
	bool summed = p->neutral || frame_is_summed(ctx);
	__u32 lengths = IOAM_USUAL_LENGTHS;
	struct frame f = frame_of(ctx);
	void *data = f.data, *end = f.end, *to;
	__be16 complement = 0, *at;

	if (offset > HEADERS_MAX || data + lengths + sizeof(__be16) > end)
		return false;
	to = data + offset;
	if (n <= IOAM_SHORT / 2 && !summed && to + IOAM_SHORT / 2 <= end) {
		ioam_put_words(to, p, n, IOAM_SHORT / 2);
	} else if (FRAME_WRITABLE && n <= IOAM_SHORT && to + IOAM_SHORT <= end) {
		if (summed)
			complement = ioam_complement_usual(to, p, n, hop_limit, fraction);
		ioam_put_words(to, p, n, IOAM_SHORT);
		if (summed) {
			at = to + 2 + (p->complement & (IOAM_SHORT - 1));
			if ((void *)(at + 1) <= end)
				*at = complement;
		}
	} else {
		return false;
	}
	if (!p->hop_limit)
		*(__u8 *)to = hop_limit;
	ioam_put_word(to, end, p->fraction, fraction);
	ioam_put_byte(to, end, p->hop_limit_wide, hop_limit);
	*(__be16 *)(data + lengths) = bpf_htons(u->lengths - n / 4);
	return true;
}

/* Fills the checksum complement, of data that go to an offset. */
static __always_inline bool ioam_neutral_usual(frame_ctx *ctx, struct ioam_work *w,
					       struct ioam_prepared *p, __u32 to)
{
	__be32 *complement = ioam_prepared_word(p, p->complement);
	__u32 n = ioam_bounded(p->bytes, IOAM_NODE_MAX);

	*complement = 0;
	if (frame_load(ctx, to, w->old, n))
		return false;
	*complement = bpf_htonl(ioam_complement(n / 4, ioam_difference(w->old, n, p->data, n)));
	return true;
}

/* Likewise with helpers, which correct a sum over the packet. 0: nothing was done. Verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_store_usual(frame_ctx *ctx, struct ioam_work *w, struct ioam_prepared *p,
			     const struct ioam_usual *u, __be32 fraction)
{
	__be16 now;
	__u32 to;

	if (!w || !p || !u)
		return false;
	now = bpf_htons(u->lengths - p->bytes / 4);
	to = ioam_usual_data(p, u);
	*ioam_prepared_word(p, p->fraction) = fraction;
	*ioam_prepared_byte(p, p->hop_limit) = u->hop_limit - 1;
	*ioam_prepared_byte(p, p->hop_limit_wide) = u->hop_limit - 1;
	if (p->neutral && !ioam_neutral_usual(ctx, w, p, to))
		return false;
	return !frame_store(ctx, to, p->data, ioam_bounded(p->bytes, IOAM_NODE_MAX)) &&
	       !frame_store(ctx, IOAM_USUAL_LENGTHS, &now, sizeof(now));
}

/* A trace that ends here, for end.h; not in a tunnel, or in front of other extension headers. */
static __always_inline void ioam_note_end(struct ioam_work *w, const struct ioam_usual *u)
{
	if (u->next != IPPROTO_TCP && u->next != IPPROTO_UDP)
		return;
	w->l3 = IOAM_USUAL_L3;
	w->at = IOAM_USUAL_LENGTHS - offsetof(struct ioam_trace, lengths);
	w->len = u->list + IOAM_HEADER - 2;
	w->space = bpf_be64_to_cpu(u->kind.trace) >> 48;
	w->next = u->next;
	w->alone = u->size;
}

/* A packet that arrives at tc. IOAM_WRITTEN, or IOAM_PASS: nothing was done. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_fill_usual(frame_ctx *ctx, struct ioam_work *w)
{
	struct ioam_prepared *p;
	struct ioam_usual u;
	__be32 fraction = 0;

	if (!w || !ioam_usual(ctx, &u))
		return IOAM_PASS;
	p = ioam_prepared_for(&u);
	if (!p)
		return IOAM_PASS;
	w->received = 0;
	if (p->timed) {
		w->received = ioam_arrival(ctx);
		fraction = ioam_time_of(p, w->received);
	}
	if (!ioam_put_usual(ctx, p, &u, fraction) && !ioam_store_usual(ctx, w, p, &u, fraction))
		return IOAM_PASS;
	w->written = p->leaves;
	ioam_stat(IOAM_WRITTEN);
	if (p->ends)
		ioam_note_end(w, &u);
	return IOAM_WRITTEN;
}

#endif

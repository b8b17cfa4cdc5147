/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Writes the options of an insertion.
 *
 * Input: the insertion that choose.h found, a form of it, and a gap of that many bytes in the packet,
 * after the IPv6 header at w->l3. Output: the bytes of the form, in which only the Next Header byte of
 * a new header is left to the caller. Called by insert.h and tunnel.h.
 */
#ifndef WAYMARK_IOAM_WRITE_H
#define WAYMARK_IOAM_WRITE_H

/* Two for each insertion. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_template);
} ioam_templates SEC(".maps");

/* Written by the programs. A series that is evicted begins again at 0. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct ioam_sequence_key);
	__type(value, __u64);
} ioam_sequences SEC(".maps");

/* Forms with an odd number are appended. */
_Static_assert(IOAM_HOP_APPENDED &IOAM_DEST_APPENDED & ~IOAM_HOP_NEW & ~IOAM_DEST_NEW & 1,
	       "the lowest bit of a form");

/* ioam_work.numbered */
#define IOAM_NUMBERED_PAIR 1
#define IOAM_NUMBERED_FLOW 2

/* Extension flags of direct export (RFC 9326 section 3.2). */
#define IOAM_DEX_FLOW 0x80
#define IOAM_DEX_SEQUENCE 0x40

/* Bytes of the packet; NULL where it has none. Not behind a helper that changes the packet. */
static __always_inline void *ioam_bytes(struct __sk_buff *skb, __u32 offset, __u32 n)
{
	__u64 at = offset;
	void *to;

	barrier_var(at); /* as in space_ipv6() */
	if (at > HEADERS_MAX)
		return NULL;
	to = (void *)(long)skb->data + at;
	return to + n > (void *)(long)skb->data_end ? NULL : to;
}

static __always_inline void ioam_poke(struct __sk_buff *skb, __u32 at, __u32 value)
{
	__be32 *to = ioam_bytes(skb, at, sizeof(*to));

	if (to)
		*to = bpf_htonl(value);
}

static __always_inline void ioam_poke_byte(struct __sk_buff *skb, __u32 at, __u8 value)
{
	__u8 *to = ioam_bytes(skb, at, sizeof(*to));

	if (to)
		*to = value;
}

/* The number of the packet in its series: the same in all options of a packet. */
static __always_inline __u64 ioam_number(struct ioam_work *w, __u32 series)
{
	__u64 *next, *number = series == IOAM_NUMBERED_FLOW ? &w->flow_number : &w->pair_number;
	struct ioam_sequence_key key = w->sequence; /* Linux 6.1 takes no key in an argument */
	__u64 first = 0;

	if (w->numbered & series)
		return *number;
	w->numbered |= series;
	key.flow = series == IOAM_NUMBERED_FLOW ? w->flow : 0;
	*number = 0;
	next = find_or_make(&ioam_sequences, &key, &first);
	if (next)
		*number = __sync_fetch_and_add(next, 1);
	return *number;
}

/* The time of node data: of receipt, and of packets of this host that of insertion. */
static __always_inline __u32 ioam_seconds(struct ioam_work *w, __u32 *fraction)
{
	__u64 wall = ioam_received(w) + ioam.wall, whole = wall / NSEC_PER_SEC;

	*fraction = ioam_fraction(wall - whole * NSEC_PER_SEC);
	return whole;
}

/* Makes the option neutral to checksums again, after times and interfaces were written. */
static __always_inline void ioam_neutralize(struct __sk_buff *skb, struct ioam_work *w,
					    const struct ioam_added *o, __u32 data)
{
	__u32 at = data + ioam_before(o->fields, 7), n = o->bytes;

	ioam_poke(skb, at, 0);
	if (n < 4 || n > IOAM_OLD_MAX ||
	    bpf_skb_load_bytes(skb, data, w->old, ioam_bounded(n, IOAM_OLD_MAX)))
		return;
	ioam_poke(skb, at, ioam_complement(o->sum, ioam_sum(w->old, n)));
}

/* This node's data, as the first node of a trace. The template has what is the same in all packets. */
static __always_inline void ioam_write_trace(struct __sk_buff *skb, struct ioam_work *w,
					     const struct ioam_added *o, __u32 data)
{
	__u32 fields = o->fields, seconds, fraction;
	struct ioam_queue q;

	if (fields & IOAM_BIT(0))
		ioam_poke_byte(skb, data, w->hop_limit);
	if (fields & IOAM_BIT(1))
		ioam_poke(skb, data + ioam_before(fields, 1), w->from.id << 16 | w->port.id);
	if (fields & IOAM_TIMES) {
		seconds = ioam_seconds(w, &fraction);
		if (fields & IOAM_BIT(2))
			ioam_poke(skb, data + ioam_before(fields, 2), seconds);
		if (fields & IOAM_BIT(3))
			ioam_poke(skb, data + ioam_before(fields, 3), fraction);
	}
	if (fields & IOAM_BIT(4) && w->timed)
		ioam_poke(skb, data + ioam_before(fields, 4), ioam_delay(w->received));
	if (fields & IOAM_QUEUES) {
		ioam_queue_of(skb, &q);
		if (fields & IOAM_BIT(6))
			ioam_poke(skb, data + ioam_before(fields, 6), q.depth);
		if (fields & IOAM_BIT(11))
			ioam_poke(skb, data + ioam_before(fields, 11), q.occupancy);
	}
	if (fields & IOAM_BIT(8))
		ioam_poke_byte(skb, data + ioam_before(fields, 8), w->hop_limit);
	if (fields & IOAM_BIT(9)) {
		ioam_poke(skb, data + ioam_before(fields, 9), w->from.wide);
		ioam_poke(skb, data + ioam_before(fields, 9) + 4, w->port.wide);
	}
	if (fields & IOAM_CHECKSUM)
		ioam_neutralize(skb, w, o, data);
}

static __always_inline void ioam_write_edge(struct __sk_buff *skb, struct ioam_work *w,
					    __u32 fields, __u32 at)
{
	__u32 seconds = 0, fraction = 0;
	__u64 number;

	if (fields & (IOAM_E2E_LONG | IOAM_E2E_SHORT)) {
		number = ioam_number(w, IOAM_NUMBERED_PAIR);
		if (fields & IOAM_E2E_LONG) {
			ioam_poke(skb, at, number >> 32);
			at += 4;
		}
		ioam_poke(skb, at, number);
		at += 4;
	}
	if (fields & (IOAM_E2E_SECONDS | IOAM_E2E_FRACTION))
		seconds = ioam_seconds(w, &fraction);
	if (fields & IOAM_E2E_SECONDS) {
		ioam_poke(skb, at, seconds);
		at += 4;
	}
	if (fields & IOAM_E2E_FRACTION)
		ioam_poke(skb, at, fraction);
}

static __always_inline void ioam_write_export(struct __sk_buff *skb, struct ioam_work *w,
					      __u32 flags, __u32 at)
{
	if (flags & IOAM_DEX_FLOW) {
		ioam_poke(skb, at, w->flow);
		at += 4;
	}
	if (flags & IOAM_DEX_SEQUENCE)
		ioam_poke(skb, at, ioam_number(w, IOAM_NUMBERED_FLOW));
}

static __always_inline void ioam_write_proof(struct __sk_buff *skb, __u32 number, __u32 at)
{
	const struct ioam_proof *proof = ioam_proof(number);
	__u64 packet = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32(), cumulative = 0;

	if (proof && proof->shares)
		cumulative = ioam_prove(proof, packet, 0);
	ioam_poke(skb, at, packet >> 32);
	ioam_poke(skb, at + 4, packet);
	ioam_poke(skb, at + 8, cumulative >> 32);
	ioam_poke(skb, at + 12, cumulative);
}

/* What depends on the packet, of one option. base: where the template would begin. */
__feature(FEATURE_IOAM) __noinline int ioam_write_option(struct __sk_buff *skb, struct ioam_work *w,
							 const struct ioam_added *o, __u32 base)
{
	__u32 body;

	if (!w || !o)
		return 0;
	body = base + o->at + IOAM_BODY;
	switch (o->type) {
	case IOAM_PREALLOCATED:
	case IOAM_INCREMENTAL:
		if (o->data)
			ioam_write_trace(skb, w, o, base + o->data);
		break;
	case IOAM_EDGE:
		ioam_write_edge(skb, w, o->fields, body + 4);
		break;
	case IOAM_EXPORT:
		ioam_write_export(skb, w, o->fields, body + 8);
		break;
	case IOAM_PROOF:
		ioam_write_proof(skb, o->proof, body + 4);
		break;
	}
	return 0;
}

/* Writes a form of an insertion at an offset of the frame. 0, or below if there is no such form. */
__feature(FEATURE_IOAM) __noinline
	int ioam_write(struct __sk_buff *skb, struct ioam_work *w, const struct ioam_insertion *in,
		       __u32 form, __u32 at)
{
	__u32 index, n, skip, first, last;
	struct ioam_template *t;
	__u8 *hop_limit;

	if (!w || !in || form >= IOAM_FORMS)
		return -1;
	n = in->bytes[form];
	index = in->template + (form >= IOAM_DEST_NEW);
	t = bpf_map_lookup_elem(&ioam_templates, &index);
	if (!t || !n || n > IOAM_BLOCK_MAX)
		return -1;
	skip = (form & 1) * IOAM_BLOCK_HEAD;
	barrier_var(skip);
	skip &= IOAM_BLOCK_HEAD; /* Linux does not see it in the product */
	n--;
	barrier_var(n);
	n = (n & (IOAM_BLOCK_MAX - 1)) + 1; /* as ioam_bounded() */
	if (bpf_skb_store_bytes(skb, at, t->data + skip, n, 0))
		return -1;
	hop_limit = ioam_bytes(skb, w->l3 + offsetof(struct ipv6hdr, hop_limit), 1);
	if (!hop_limit)
		return -1;
	w->hop_limit = *hop_limit;
	first = form >= IOAM_DEST_NEW ? in->options[0] : 0;
	last = form >= IOAM_DEST_NEW ? first + in->options[1] : in->options[0];
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < IOAM_ADDED_MAX; i++) {
		if (i >= first && i < last)
			ioam_write_option(skb, w, &in->option[i], at - skip);
	}
	return 0;
}

/* Counts packets with all options of an insertion: those on the wire, after a burst was cut again. */
static __always_inline void ioam_inserted(const struct ioam_insertion *in, const struct packet *p)
{
	__u32 slot = in->slot;
	struct ioam_insertion_state *s = bpf_map_lookup_elem(&ioam_insertion_states, &slot);

	if (s)
		s->inserted += p->gso_packets + 1;
}

#endif

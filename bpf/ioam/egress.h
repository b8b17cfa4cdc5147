/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Transit at the interface where a packet leaves: what only that interface knows is added to the
 * data that transit.h wrote.
 *
 * Input: a forwarded packet with the receive time that ingress.h passed on. Output: the
 * same packet with egress interface, its queues, and transit delay in its newest node data.
 */
#ifndef WAYMARK_IOAM_EGRESS_H
#define WAYMARK_IOAM_EGRESS_H

/* What is added to node data where the packet leaves. */
struct ioam_completed {
	struct ioam_kind kind;
	/* Offsets in the node data, of what is written; IOAM_ABSENT: not in such traces. */
	__u8 id;
	__u8 delay;
	__u8 wide;
	__u8 complement;
	__u8 depth;
	__u8 occupancy;
	bool queued; /* queues are measured */
	bool neutral;
	__be16 port; /* id of the interface */
	__u16 size; /* of the node data */
	__be32 port_wide;
};

_Static_assert(sizeof(struct ioam_completed) == 32, "two in a cache line");

/* As ioam_prepared_in(). */
static __always_inline struct ioam_completed *ioam_completed_in(__u32 slot)
{
	struct ioam_completed *all = IOAM_CPU(struct ioam_completed, completed);

	_Static_assert(IOAM_KINDS * sizeof(*all) == sizeof(((struct ioam_cpu *)0)->completed),
		       "its part");
	return all ? &all[slot & (IOAM_KINDS - 1)] : NULL;
}

/* Keeps where the fields are that the egress completes in node data of n bytes. */
static __always_inline void ioam_remember_completed(frame_ctx *ctx, const struct ioam_work *w,
						    __u32 fields, __u32 n)
{
	struct ioam_completed *c;
	struct ioam_kind k;

	if (n > IOAM_SHORT || !ioam_kind_of(ctx, w, fields, &k))
		return;
	c = ioam_completed_in(ioam_kind_slot(&k));
	if (!c)
		return;
	c->kind = k;
	c->id = ioam_offset(fields, 1, IOAM_ABSENT);
	c->delay = ioam_offset(fields, 4, IOAM_ABSENT);
	c->wide = ioam_offset(fields, 9, IOAM_ABSENT);
	c->complement = ioam_offset(fields, 7, IOAM_ABSENT);
	c->depth = ioam_offset(fields, 6, IOAM_ABSENT);
	c->occupancy = ioam_offset(fields, 11, IOAM_ABSENT);
	c->queued = fields & IOAM_QUEUES;
	c->neutral = fields & IOAM_CHECKSUM;
	c->port = bpf_htons(w->port.id);
	c->port_wide = bpf_htonl(w->port.wide);
	c->size = n;
}

/* A word of node data that is replaced. Returns by how much a sum of 16-bit words shrinks, as they are in memory. */
static __always_inline __u64 ioam_replace(void *to, const void *end, __u32 offset, __be32 value)
{
	__be32 *at = to + (offset & (IOAM_SHORT - 1)), old;

	if (offset >= IOAM_SHORT || (void *)(at + 1) > end)
		return 0;
	old = *at;
	*at = value;
	return (__u64)old + (__u32)~value;
}

static __always_inline __u64 ioam_replace_short(void *to, const void *end, __u32 offset,
						__be16 value)
{
	__be16 *at = to + (offset & (IOAM_SHORT - 1)), old;

	if (offset >= IOAM_SHORT || (void *)(at + 1) > end)
		return 0;
	old = *at;
	*at = value;
	return (__u64)old + (__u16)~value;
}

/* The checksum complement, after a sum has shrunk. */
static __always_inline void ioam_add_complement(void *to, const void *end, __u32 offset, __u64 less)
{
	__be16 *at = to + 2 + (offset & (IOAM_SHORT - 1));

	if (offset < IOAM_SHORT && (void *)(at + 1) <= end)
		*at = ioam_fold(*at + less);
}

/* The fields of node data that c names, and sums over the packet, as far as there are any. */
static __always_inline void ioam_complete_data(struct __sk_buff *skb,
					       const struct ioam_completed *c, void *to,
					       const void *end, __be32 delay)
{
	struct ioam_queue q;
	__u64 less = 0;

	less += ioam_replace_short(to, end, c->id + 2, c->port);
	less += ioam_replace(to, end, c->delay, delay);
	less += ioam_replace(to, end, c->wide + 4, c->port_wide);
	if (c->queued) {
		ioam_queue_of(skb, &q);
		less += ioam_replace(to, end, c->depth, bpf_htonl(q.depth));
		less += ioam_replace(to, end, c->occupancy, bpf_htonl(q.occupancy));
	}
	if (c->neutral)
		ioam_add_complement(to, end, c->complement, less);
	else
		frame_add_sum(skb, (__u16)~ioam_fold(less));
}

/* A packet with a trace alone. IOAM_COMPLETED, or IOAM_PASS: nothing was done. Verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_complete_usual(struct __sk_buff *skb, struct ioam_work *w)
{
	struct ioam_completed *c;
	struct ioam_usual u;
	__be32 delay = 0;
	struct frame f;
	__u32 to;

	if (!w || !ioam_usual(skb, &u))
		return IOAM_PASS;
	c = ioam_completed_in(ioam_kind_slot(&u.kind));
	if (!c || !ioam_same_kind(&c->kind, &u.kind) || u.remaining + c->size > u.list)
		return IOAM_PASS;
	if (c->delay != IOAM_ABSENT)
		delay = bpf_htonl(ioam_delay(w->received));
	to = IOAM_USUAL_LENGTHS + IOAM_LIST + u.remaining;
	f = frame_of(skb);
	if (to > HEADERS_MAX || f.data + to + c->size > f.end)
		return IOAM_PASS;
	ioam_complete_data(skb, c, f.data + to, f.end, delay);
	ioam_stat(IOAM_COMPLETED);
	return IOAM_COMPLETED;
}

/* One option. IOAM_COMPLETED, IOAM_GROWS, or IOAM_PASS where there is nothing to add. */
__feature(FEATURE_IOAM) __noinline int ioam_egress_option(frame_ctx *ctx, struct ioam_work *w)
{
	const struct ioam_namespace *ns;
	__u32 lengths, remaining, n, fields, to, before = 0;
	struct ioam_trace t;

	if (!w || w->len < IOAM_HEADER - 2 || frame_load(ctx, w->at, &t, sizeof(t)))
		return IOAM_PASS;
	lengths = bpf_ntohs(t.lengths);
	fields = bpf_ntohl(t.fields);
	remaining = lengths & IOAM_REMAINING;
	if (t.type == IOAM_INCREMENTAL)
		return IOAM_GROWS;
	if (t.type != IOAM_PREALLOCATED || lengths & IOAM_OVERFLOW || !(fields & IOAM_AT_EGRESS))
		return IOAM_PASS;
	w->space = bpf_ntohs(t.space);
	ns = ioam_namespace(w->copy, w->space);
	if (!ns || !(ioam_role(ctx, w, w->space) & IOAM_ROLE_EGRESS) ||
	    lengths >> IOAM_NODELEN_SHIFT != ioam_node_length(fields))
		return IOAM_PASS;
	n = ioam_node_length(fields) * 4;
	if (fields & IOAM_SNAPSHOT)
		n += 4;
	to = w->at + IOAM_HEADER + remaining * 4;
	if (n < 4 || n > IOAM_NODE_MAX || w->len < IOAM_HEADER - 2 + remaining * 4 + n ||
	    frame_load(ctx, to, w->data, ioam_bounded(n, IOAM_OLD_MAX)))
		return IOAM_PASS;
	if (fields & IOAM_CHECKSUM)
		before = ioam_sum(w->data, n);
	ioam_set_egress(ctx, w, fields);
	if (fields & IOAM_CHECKSUM) {
		__u32 at = ioam_before(fields, 7);

		ioam_set(w, at, 0);
		ioam_set(w, at, ioam_complement(before, ioam_sum(w->data, n)));
	}
	if (frame_store(ctx, to, w->data, ioam_bounded(n, IOAM_OLD_MAX)))
		return IOAM_UNREADABLE;
	ioam_remember_completed(ctx, w, fields, n);
	return IOAM_COMPLETED;
}

/* All options of a packet that leaves. IOAM_PASS, or the reason to drop it. */
__feature(FEATURE_IOAM) __noinline int ioam_complete(frame_ctx *ctx, struct ioam_work *w)
{
	struct ioam_options o;
	bool changes;
	int rc;

	if (!w || !ioam_options(ctx, w->l3, &o, &w->hop_limit))
		return IOAM_PASS;
	w->direct = 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_OPTIONS_MAX && ioam_next(ctx, &o, w, &changes); i++) {
		if (!changes) {
			ioam_direct_leave(ctx, w);
			continue;
		}
		rc = ioam_egress_option(ctx, w);
		if (rc == IOAM_GROWS) {
			rc = ioam_grow(ctx, w, o.end);
			o.at = w->behind;
			o.end += w->grown;
			if (rc == IOAM_BROKEN)
				return rc;
		}
		if (rc >= 0)
			ioam_stat(rc);
	}
	return IOAM_PASS;
}

/* A packet that leaves. Verified alone, as ioam_ingress(). Not TC_ACT_UNSPEC: the verdict. */
__feature(FEATURE_IOAM) __noinline int ioam_egress(struct __sk_buff *skb)
{
	__u32 l3;
	struct ioam_work *w = IOAM_CPU(struct ioam_work, work);
	int verdict = TC_ACT_UNSPEC;

	if (!w)
		return TC_ACT_UNSPEC;
	w->received = 0; /* unless the packet has it: write.h reads it, too */
	if (!is_extension(ioam_next_header(skb, &l3), true))
		return TC_ACT_UNSPEC;
	if (cfg_ioam_stamp && skb->ingress_ifindex &&
	    skb->tstamp_type == BPF_SKB_TSTAMP_DELIVERY_MONO) {
		w->received = skb->tstamp;
		if (ioam_complete_usual(skb, w) == IOAM_COMPLETED) {
			bpf_skb_set_tstamp(skb, 0, BPF_SKB_TSTAMP_UNSPEC);
			return TC_ACT_UNSPEC;
		}
	}
	w = ioam_begin(skb, l3);
	if (!w)
		return TC_ACT_UNSPEC;
	if (ioam_is_border(w)) {
		if (ioam_border_check(skb, w, DIRECTION_EGRESS) != IOAM_PASS)
			return TC_ACT_SHOT;
		verdict = ioam_remove_barred(skb, w);
	}
	if (!cfg_ioam_stamp || !skb->ingress_ifindex ||
	    skb->tstamp_type != BPF_SKB_TSTAMP_DELIVERY_MONO || !ioam_has_options(skb, &l3))
		return verdict;
	w->received = skb->tstamp;
	if (ioam_complete(skb, w) != IOAM_PASS)
		return TC_ACT_SHOT;
	bpf_skb_set_tstamp(skb, 0, BPF_SKB_TSTAMP_UNSPEC);
	return verdict;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Edge-to-edge options (RFC 9197 section 4.6) of packets that end at this node: loss, reordering,
 * duplicates and one-way delay of each sender.
 *
 * Input: a packet at tc ingress. Output: the counts of its namespace, source and destination. Called by
 * ingress.h.
 *
 * Numbers near the highest one are believed. Others are once they follow each other: far ahead they mean
 * loss, else that the sender began again.
 */
#ifndef WAYMARK_IOAM_EDGE_H
#define WAYMARK_IOAM_EDGE_H

#include "lock.h"
#include "window.h"

#define IOAM_EDGE_NEAR 1024 /* one number alone reports no more loss */
#define IOAM_EDGE_FAR (1 << 20) /* more are a restart rather than loss */
#define IOAM_EDGE_FOLLOWING 4 /* numbers in a row that are believed */

/*
 * Senders. Made by the programs; read by the agent, which deletes those that are silent for long. Full:
 * edges_lost.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ioam_edge_key);
	__type(value, struct ioam_edge);
} ioam_edges_by_sender SEC(".maps");

/* Memory for one option. */
struct ioam_edge_work {
	struct ioam_edge_key key;
	struct ioam_edge fresh; /* zeros, but for the base */
	__be32 field[8]; /* behind the header of the option */
	__u64 number;
	__s64 delay; /* IOAM_NO_TIME */
	__u32 fields;
	__u32 word; /* bytes 4 to 7 of the transport header */
};

/* The number of the packet, after the ones before it. Under the lock. */
static __always_inline void ioam_edge_observe(struct ioam_edge *e, __u64 number, __s64 d,
					      __u32 word)
{
	e->received++;
	e->following = 0;
	if (d > 0) {
		e->lost += d - 1;
		e->highest = number;
		e->word = word;
		e->burst = e->burst > d ? e->burst - d : 0;
		window_advance(&e->seen, &e->span, d);
		return;
	}
	if (d == 0 && word != e->word) { /* another segment of a GSO burst, which share a number */
		e->burst = SEQUENCE_WINDOW;
		return;
	}
	if (window_has(e->seen, -d)) {
		e->duplicates += !e->burst;
		return;
	}
	e->reordered++;
	e->lost += window_late(&e->seen, &e->span, -d);
}

static __always_inline void ioam_edge_begin(struct ioam_edge *e, __u64 number, __u32 word)
{
	e->highest = number;
	e->word = word;
	e->seen = 1;
	e->span = 1;
	e->burst = 0;
	e->following = 0;
}

/* A number far from the highest. Under the lock. */
static __always_inline void ioam_edge_suspect(struct ioam_edge *e, __u64 number, __s64 d,
					      __u32 word)
{
	if (!e->following || number != e->next) {
		e->discarded += e->following;
		e->following = 0;
	}
	e->next = number + 1;
	if (++e->following < IOAM_EDGE_FOLLOWING)
		return;
	e->received += IOAM_EDGE_FOLLOWING;
	if (d > 0 && d <= IOAM_EDGE_FAR)
		e->lost += d - IOAM_EDGE_FOLLOWING;
	else
		e->restarts++;
	ioam_edge_begin(e, number, word);
	e->seen = (1 << IOAM_EDGE_FOLLOWING) - 1;
	e->span = IOAM_EDGE_FOLLOWING;
}

static __always_inline void ioam_edge_number(struct ioam_edge *e, const struct ioam_edge_work *work)
{
	__u64 number = work->number;
	__s64 d = number - e->highest;

	if (!(work->fields & IOAM_E2E_LONG)) {
		d = (__s32)d;
		number = e->highest + d; /* 32 bits on the wire, 64 here */
	}
	e->sequence = 1;
	if (!e->span) {
		e->received++;
		ioam_edge_begin(e, work->number, work->word);
	} else if (d > -SEQUENCE_WINDOW && d <= IOAM_EDGE_NEAR) {
		ioam_edge_observe(e, number, d, work->word);
	} else {
		ioam_edge_suspect(e, number, d, work->word);
	}
}

/* From the time in the option to now. */
static __always_inline __s64 ioam_edge_since(struct ioam_work *w, __u32 fields, __u32 seconds,
					     __u32 fraction)
{
	__u64 wall, whole;
	__u32 ns;
	__s64 d;

	if (!(fields & IOAM_E2E_FRACTION) ||
	    (fraction == IOAM_UNKNOWN && (seconds == IOAM_UNKNOWN || !(fields & IOAM_E2E_SECONDS))))
		return IOAM_NO_TIME;
	ns = ioam_fraction_ns(fraction);
	if (ns == IOAM_UNKNOWN)
		return IOAM_NO_TIME;
	wall = ioam_received(w) + ioam.wall;
	whole = wall / NSEC_PER_SEC;
	d = (__s64)(wall - whole * NSEC_PER_SEC) - ns;
	if (fields & IOAM_E2E_SECONDS)
		return d + (__s64)(__s32)((__u32)whole - seconds) * (__s64)NSEC_PER_SEC;
	return ioam_nearest(d);
}

/* The sender's counts; NULL: there is no place for them. */
static __noinline struct ioam_edge *ioam_edge_of(struct ioam_edge_work *work)
{
	struct ioam_edge *e = bpf_map_lookup_elem(&ioam_edges_by_sender, &work->key);

	if (e)
		return e;
	work->fresh.base = ioam_first_base(work->delay);
	bpf_map_update_elem(&ioam_edges_by_sender, &work->key, &work->fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&ioam_edges_by_sender, &work->key);
}

/* What the packet's first option changed in the counts, for its flow: path_flow.h. Under the lock. */
static __always_inline void ioam_edge_link(struct ioam_work *w, const struct ioam_edge *e,
					   const struct ioam_numbers *was)
{
	if (w->reported & IOAM_NUMBERED)
		return;
	w->reported |= IOAM_NUMBERED;
	w->numbers.received = e->received - was->received;
	w->numbers.lost = e->lost - was->lost;
	w->numbers.reordered = e->reordered - was->reordered;
	w->numbers.duplicates = e->duplicates - was->duplicates;
}

/* The option whose data begin at `at`, of the namespace of this node. */
static __noinline int ioam_edge_add(frame_ctx *ctx, struct ioam_work *w,
				    struct ioam_edge_work *work)
{
	struct ioam_numbers was;
	struct ioam_edge *e;

	work->key.space = w->space;
	work->key.netns = cfg_netns;
	if (frame_load(ctx, w->l3 + offsetof(struct ipv6hdr, saddr), work->key.source, 32))
		return 0;
	e = ioam_edge_of(work);
	if (!e || !lock_word(&e->lock)) {
		IOAM_PATH_STAT(edges_lost);
		return 0;
	}
	e->iface = iface_of(ctx);
	was.received = e->received;
	was.lost = e->lost;
	was.reordered = e->reordered;
	was.duplicates = e->duplicates;
	if (work->fields & (IOAM_E2E_LONG | IOAM_E2E_SHORT))
		ioam_edge_number(e, work);
	if (!w->reported)
		w->whole = work->delay;
	ioam_edge_link(w, e, &was);
	if (work->delay != IOAM_NO_TIME)
		ioam_cell_count(&e->delay, work->delay, e->base);
	unlock_word(&e->lock);
	IOAM_PATH_STAT(edges);
	return 0;
}

/* An option that nodes on the path leave as it is, at w->at. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_edge_option(frame_ctx *ctx, struct ioam_work *w)
{
	struct ioam_edge_header h;
	const struct ioam_namespace *ns;
	struct ioam_edge_work *work;
	__u32 n, at = 0;

	work = SCRATCH(struct ioam_edge_work, ioam_edge);
	if (!w || !work || w->len < sizeof(h) - 2 || frame_load(ctx, w->at, &h, sizeof(h)) ||
	    h.option != IOAM_OPTION_STAYS || h.type != IOAM_EDGE)
		return 0;
	w->space = bpf_ntohs(h.space);
	ns = ioam_namespace(w->copy, w->space);
	if (!ns || !ns->remove || !(ioam_role(ctx, w, w->space) & IOAM_ROLE_INGRESS))
		return 0;
	work->fields = bpf_ntohs(h.fields);
	n = w->len + 2 - sizeof(h);
	if (n > sizeof(work->field) || n < 4 || n & 3)
		return 0;
	__builtin_memset(work->field, 0, sizeof(work->field));
	if (frame_load(ctx, w->at + sizeof(h), work->field, ((n - 1) & 31) + 1))
		return 0;
	work->number = 0;
	if (work->fields & IOAM_E2E_LONG) {
		work->number = (__u64)bpf_ntohl(work->field[0]) << 32 | bpf_ntohl(work->field[1]);
		at = 2;
	} else if (work->fields & IOAM_E2E_SHORT) {
		work->number = bpf_ntohl(work->field[0]);
		at = 1;
	}
	if (n <
	    (at + !!(work->fields & IOAM_E2E_SECONDS) + !!(work->fields & IOAM_E2E_FRACTION)) * 4)
		return 0;
	work->delay = ioam_edge_since(
		w, work->fields, bpf_ntohl(work->field[at & 7]),
		bpf_ntohl(work->field[(at + !!(work->fields & IOAM_E2E_SECONDS)) & 7]));
	return ioam_edge_add(ctx, w, work);
}

/* The options of a header. Verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_edge_options(frame_ctx *ctx, struct ioam_work *w, __u32 at, __u32 end)
{
	struct ioam_options o = { .at = at + 2, .end = end };
	bool changes;

	if (!w)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_OPTIONS_MAX && ioam_next(ctx, &o, w, &changes); i++)
		if (!changes)
			ioam_edge_option(ctx, w);
	return 0;
}

/* All edge-to-edge options of a packet, which are in its Destination Options. Verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_edges(struct __sk_buff *skb, struct ioam_work *w, int first)
{
	struct ioam_edge_work *work;
	struct chain chain = {};
	__u32 header, found = 0, end = 0;
	__be32 word;
	int rc;

	work = SCRATCH(struct ioam_edge_work, ioam_edge);
	if (!w || !work)
		return 0;
	chain.next = first;
	chain.ipv6 = 1;
	chain.offset = w->l3 + sizeof(struct ipv6hdr);
	chain.ip_end = skb->len;
#pragma clang loop unroll(disable)
	for (int i = 0; i < EXT_HEADERS_MAX; i++) {
		bool options = chain.next == IPPROTO_DSTOPTS;

		header = chain.offset;
		rc = pass_extension(skb, &chain);
		if (rc != PARSE_OK && rc != PARSE_MORE)
			return 0;
		if (options) { /* the last one: the others are of routers on the way */
			found = header;
			end = chain.offset;
		}
		if (rc == PARSE_OK)
			break;
	}
	if (!found)
		return 0;
	work->word = 0;
	if (!frame_load(skb, chain.offset + 4, &word, sizeof(word)))
		work->word = word;
	return ioam_edge_options(skb, w, found, end);
}

#endif

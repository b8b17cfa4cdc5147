/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Paths: the traces that end at this node, aggregated.
 *
 * Input: a packet at tc ingress, with this node's own data in its traces. Output: for each trace of a
 * namespace that the node removes, one more packet of its path, with the times of its hops; and the
 * first trace of each path in a ring. Called by ingress.h.
 */
#ifndef WAYMARK_IOAM_PATH_H
#define WAYMARK_IOAM_PATH_H

#include "histogram.h"

/* ioam_cells has so many for each epoch. */
const volatile __u32 cfg_ioam_cells = 0;

/* Cells in use, by epoch. Taken by the programs, released by the agent after a drain. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} ioam_cells_used SEC(".maps");

/*
 * Paths by CPU and epoch. Written by the programs; read and deleted by the agent when no program uses
 * the epoch. Full: ioam_known is sized to prevent it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ioam_path_key);
	__type(value, struct ioam_path);
} ioam_paths SEC(".maps");

/* Times of paths, likewise; cleared by the agent. Full: delays_lost. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_cell);
} ioam_cells SEC(".maps");

/* Paths that are counted. Made by the programs, deleted by the agent. Full: IOAM_PATHS_FULL. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct ioam_known);
} ioam_known SEC(".maps");

/* Written by the programs, read by the agent. Full: reports_lost, raw_lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ioam_reports SEC(".maps");

#define IOAM_PATH_STAT(field)                       \
	do {                                        \
		struct ioam_cpu *cpu_ = ioam_cpu(); \
		if (cpu_)                           \
			cpu_->paths.field++;        \
	} while (0)

/* Takes what each second allows of raw traces. */
static __always_inline bool ioam_take_raw(struct ioam_walk *walk, __u64 now)
{
	__u64 second = now / NSEC_PER_SEC;

	if (walk->second != second) {
		walk->second = second;
		walk->reported = 0;
	}
	return walk->reported++ < ioam.raw;
}

/* Puts the trace into the ring. Not 0 where that is full. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_report(frame_ctx *ctx, const struct ioam_work *w,
						   const struct ioam_walk *walk, __u32 kind)
{
	struct ioam_report *r;

	if (!w || !walk)
		return -1;
	r = bpf_ringbuf_reserve(&ioam_reports, sizeof(*r), 0);
	if (!r)
		return -1;
	r->id = walk->key.id;
	r->time = bpf_ktime_get_ns();
	r->iface = iface_of(ctx);
	r->kind = kind;
	r->returned = w->returned;
	r->len = walk->len;
	__builtin_memcpy(r->option, walk->word, sizeof(r->option));
	__builtin_memset(r->source, 0, sizeof(r->source));
	__builtin_memset(r->destination, 0, sizeof(r->destination));
	frame_load(ctx, w->l3 + offsetof(struct ipv6hdr, saddr), r->source,
		   sizeof(r->source) + sizeof(r->destination));
	bpf_ringbuf_submit(r, 0);
	return 0;
}

#define IOAM_BASE_SLACK (1LL << 24) /* that a first base is below the first difference */

/* 0: of clocks that agree, or there is no difference. Without jumps: the verifier would follow both ways at each hop. */
static __always_inline __s64 ioam_first_base(__s64 d)
{
	__u64 negative = is_less(d, 0), none = negative & (is_less((__u64)d - 1, 0) ^ 1);
	__u64 apart = (negative | is_less(IOAM_PLAUSIBLE - 1, d)) & (none ^ 1);

	return ((__u64)d - IOAM_BASE_SLACK) & -apart;
}

/* Cells for the times of so many hops in this epoch. */
static __always_inline __u32 ioam_take_cells(__u32 epoch, __u32 hops)
{
	__u32 *used = bpf_map_lookup_elem(&ioam_cells_used, &epoch);
	__u32 cell;

	if (!used || *used + hops * 2 > cfg_ioam_cells)
		return IOAM_NO_CELLS;
	cell = __sync_fetch_and_add(used, hops * 2);
	return cell + hops * 2 > cfg_ioam_cells ? IOAM_NO_CELLS : cell;
}

/*
 * The path's entry for this epoch and CPU, made for its first packet there. Verified alone: Linux before 6.3 takes keys
 * from a map, and not from an argument.
 */
__feature(FEATURE_IOAM) __noinline
	int ioam_path_begin(frame_ctx *ctx, const struct ioam_work *w, __u64 now)
{
	struct ioam_walk *walk = IOAM_CPU(struct ioam_walk, walk);
	struct ioam_known *known;
	struct ioam_path *fresh;

	if (!w || !walk)
		return IOAM_PATHS_FULL;
	known = bpf_map_lookup_elem(&ioam_known, &walk->key.id);
	fresh = &walk->fresh;
	if (!known) {
		walk->known.reported = 0;
		for (__u32 i = 0; i < IOAM_HOPS; i++)
			walk->known.base[i] = ioam_first_base(walk->time[2 * i + 1]) &
					      -(__s64)is_less(i, walk->hops);
		bpf_map_update_elem(&ioam_known, &walk->key.id, &walk->known, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&ioam_known, &walk->key.id);
		if (!known)
			return IOAM_PATHS_FULL;
	}
	if (!__sync_lock_test_and_set(&known->reported, 1) &&
	    ioam_report(ctx, w, walk, IOAM_REPORT_PATH)) {
		known->reported = 0; /* the path's next epoch reports it */
		IOAM_PATH_STAT(reports_lost);
	}
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->first = now;
	fresh->hops = walk->hops;
	__builtin_memcpy(fresh->base, known->base, sizeof(fresh->base));
	fresh->cell = ioam_take_cells(walk->key.epoch, walk->hops);
	bpf_map_update_elem(&ioam_paths, &walk->key, fresh, BPF_NOEXIST);
	return IOAM_PASS;
}

/* Without jumps but one: this is done for each time of a trace. */
static __always_inline void ioam_cell_count(struct ioam_cell *c, __s64 ns, __s64 base)
{
	__s64 first = -(__s64)is_less(c->count, 1), low, high;

	low = first | -(__s64)is_less(ns, c->min);
	high = first | -(__s64)is_less(c->max, ns);
	c->min = (ns & low) | (c->min & ~low);
	c->max = (ns & high) | (c->max & ~high);
	c->count++;
	c->sum += ns;
	histogram_count(c->bucket, at_least_0(ns - base));
}

static __always_inline void ioam_cell_add(__u32 first, __u32 i, __s64 ns, __s64 base)
{
	__u32 index = first + i;
	struct ioam_cell *c;

	if (ns == IOAM_NO_TIME)
		return;
	c = bpf_map_lookup_elem(&ioam_cells, &index);
	if (c)
		ioam_cell_count(c, ns, base);
}

/*
 * Adds both times of hop i to the cells of the path, whose first one is given. Verified alone: the verifier would follow
 * each hop twice.
 */
__feature(FEATURE_IOAM) __noinline int ioam_hop_times(const struct ioam_walk *walk,
						      struct ioam_path *path, __u32 first, __u32 i)
{
	if (!walk || !path)
		return 0;
	i &= IOAM_HOPS - 1;
	ioam_cell_add(first, 2 * i, walk->time[2 * i], 0); /* delays of hops have no base */
	ioam_cell_add(first, 2 * i + 1, walk->time[2 * i + 1], path->base[i]);
	return 0;
}

/* Adds the times of a trace to the cells of its path. */
static __always_inline void ioam_path_times(const struct ioam_walk *walk, struct ioam_path *path)
{
	__u32 first = path->cell + (walk->key.epoch & 1) * cfg_ioam_cells;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < IOAM_HOPS && i < walk->hops; i++)
		ioam_hop_times(walk, path, first, i);
}

/* The trace whose option is at w->at, as it was walked. IOAM_PASS, or why it is in no path. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_path_add(frame_ctx *ctx, struct ioam_work *w)
{
	struct ioam_walk *walk = IOAM_CPU(struct ioam_walk, walk);
	struct ioam_path *path;
	__u64 now;
	int rc;

	if (!w || !walk)
		return IOAM_PASS;
	now = ioam_received(w);
	walk->key.epoch = current_epoch & 1;
	walk->key.cpu = bpf_get_smp_processor_id();
	path = bpf_map_lookup_elem(&ioam_paths, &walk->key);
	if (!path) {
		rc = ioam_path_begin(ctx, w, now);
		if (rc != IOAM_PASS)
			return rc;
		path = bpf_map_lookup_elem(&ioam_paths, &walk->key);
		if (!path)
			return IOAM_PATHS_FULL;
	}
	path->packets += segments_of(ctx);
	path->bytes += frame_len(ctx);
	path->last = now;
	if (path->cell == IOAM_NO_CELLS)
		IOAM_PATH_STAT(delays_lost);
	else
		ioam_path_times(walk, path);
	IOAM_PATH_STAT(traces);
	w->reported |= IOAM_TRACED;
	w->path = walk->key.id;
	w->whole = walk->time[2 * ((walk->hops - 1) & (IOAM_HOPS - 1)) + 1];
	if (ioam.raw) {
		now = bpf_ktime_get_ns();
		if (!ioam_take_raw(walk, now) || ioam_report(ctx, w, walk, IOAM_REPORT_RAW))
			IOAM_PATH_STAT(raw_lost);
	}
	return IOAM_PASS;
}

/*
 * Adds this node's data to the copy of an incremental trace, which does not grow where it ends. Not 0 where the trace
 * cannot be read. Verified alone.
 */
__feature(FEATURE_IOAM) __noinline
	int ioam_collect_own(frame_ctx *ctx, struct ioam_work *w, struct ioam_walk *walk)
{
	const struct ioam_namespace *ns;
	struct ioam_schema *schema;
	struct ioam_trace *t;
	__u32 lengths, remaining, fields, words, list, n, index;

	if (!w || !walk)
		return 0;
	ns = ioam_namespace(w->copy, w->space);
	if (!ns)
		return 0;
	t = (void *)walk->word;
	lengths = bpf_ntohs(t->lengths);
	remaining = lengths & IOAM_REMAINING;
	fields = bpf_ntohl(t->fields);
	words = ioam_node_length(fields);
	if (fields & IOAM_SNAPSHOT)
		words += ns->snapshot;
	if (lengths & IOAM_OVERFLOW || !words)
		return 0;
	if (words > remaining || walk->len + words * 4 > IOAM_OPTION_MAX) {
		t->lengths = bpf_htons(lengths | IOAM_OVERFLOW);
		return 0;
	}
	w->hop_limit--; /* as in ioam_transit() */
	n = ioam_fill(ctx, w, ns, fields) / 4;
	w->hop_limit++;
	if (fields & IOAM_CHECKSUM)
		ioam_set(w, ioam_before(fields, 7), IOAM_UNKNOWN);
	__builtin_memcpy(&walk->word[IOAM_FIRST_WORD], w->data, IOAM_NODE_MAX);
	index = ns->schema;
	schema = ns->snapshot > 1 ? bpf_map_lookup_elem(&ioam_schemas, &index) : NULL;
	n += IOAM_FIRST_WORD;
	barrier_var(n);
	if (fields & IOAM_SNAPSHOT && schema)
		__builtin_memcpy(&walk->word[n & (2 * IOAM_WORDS - 1)], schema->data,
				 IOAM_SCHEMA_MAX);
	list = walk->len - IOAM_HEADER;
	n = IOAM_FIRST_WORD + words;
	barrier_var(n);
	if (list && frame_load(ctx, w->at + IOAM_HEADER, &walk->word[n & (2 * IOAM_WORDS - 1)],
			       ioam_bounded(list, IOAM_OLD_MAX)))
		return -1;
	t->len += words * 4;
	t->lengths = bpf_htons(lengths - words);
	walk->len += words * 4;
	return 0;
}

/* One option. IOAM_PASS where it is in a path, or not a trace that ends here; else a reason. */
__feature(FEATURE_IOAM) __noinline int ioam_collect_option(frame_ctx *ctx, struct ioam_work *w)
{
	const struct ioam_namespace *ns;
	struct ioam_trace *t;
	struct ioam_walk *walk;
	__u32 len, lengths;
	int rc;

	walk = IOAM_CPU(struct ioam_walk, walk);
	if (!w || !walk || w->len < IOAM_HEADER - 2)
		return IOAM_PASS;
	len = w->len + 2;
	if (len < IOAM_HEADER || len > IOAM_OPTION_MAX)
		return IOAM_PASS;
	if (frame_load(ctx, w->at, walk->word, ioam_bounded(len, IOAM_OLD_MAX)))
		return IOAM_UNREADABLE;
	walk->len = len;
	t = (void *)walk->word;
	if (t->type != IOAM_PREALLOCATED && t->type != IOAM_INCREMENTAL)
		return IOAM_PASS;
	w->space = bpf_ntohs(t->space);
	ns = ioam_namespace(w->copy, w->space);
	if (!ns || !(ns->remove || w->returned) ||
	    !(ioam_role(ctx, w, w->space) & IOAM_ROLE_INGRESS))
		return IOAM_PASS;
	lengths = bpf_ntohs(t->lengths);
	if (lengths >> IOAM_NODELEN_SHIFT != ioam_node_length(bpf_ntohl(t->fields)) || len & 3)
		return IOAM_PATH_MALFORMED;
	walk->at = IOAM_FIRST_WORD;
	if (t->type == IOAM_PREALLOCATED)
		walk->at += lengths & IOAM_REMAINING;
	else if (ns->incremental && ioam_collect_own(ctx, w, walk))
		return IOAM_UNREADABLE;
	rc = ioam_walk_hops(walk);
	if (rc != IOAM_PASS || !walk->hops)
		return rc;
	return ioam_path_add(ctx, w);
}

/* Traces of a packet that arrives. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_collect(struct __sk_buff *skb, struct ioam_work *w)
{
	struct ioam_options o;
	bool changes;

	if (!w || !ioam_options(skb, w->l3, &o, &w->hop_limit))
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_OPTIONS_MAX && ioam_next(skb, &o, w, &changes); i++) {
		int rc = changes ? ioam_collect_option(skb, w) : IOAM_PASS;

		if (rc != IOAM_PASS)
			ioam_count(skb, DIRECTION_INGRESS, rc, w->space);
	}
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Paths: the traces that end at this node, aggregated.
 *
 * Input: a packet at tc ingress, with this node's own data in its traces. Output: for each trace of a
 * namespace that the node removes, one more packet of its path, with the times of its hops; and the
 * first trace of each path in a ring. Called by ingress.h.
 *
 * A path is identified by what its hops say of themselves: node ids and interface ids. Its number is a hash of
 * them with random keys (NH, as of flows), so that nodes cannot choose ids of which two paths become one.
 */
#ifndef WAYMARK_IOAM_PATH_H
#define WAYMARK_IOAM_PATH_H

#include "histogram.h"

/* Two for each pair of words: that of the namespace, and three for each hop. */
const volatile __u32 cfg_ioam_path_keys[IOAM_PATH_KEYS] = {};

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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_path_totals);
} ioam_path_stats SEC(".maps");

#define IOAM_NO_TIME (1LL << 63)
#define IOAM_WORDS (IOAM_OPTION_MAX / 4)
#define IOAM_FIRST_WORD (IOAM_HEADER / 4) /* of the node data */

/*
 * Flows of packets that have a trace, by CPU and epoch. Written by the programs; read and deleted by the
 * agent when no program uses the epoch. Full: flows_lost.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ioam_flow_key);
	__type(value, struct ioam_flow);
} ioam_flows SEC(".maps");

/* Memory for one trace. */
struct ioam_walk {
	__be32 word[2 * IOAM_WORDS]; /* the option; no node's fields reach beyond the second half */
	__s64 delay[IOAM_HOPS]; /* by hop: transit; IOAM_NO_TIME */
	__s64 link[IOAM_HOPS]; /* cell 2i + 1 */
	__u32 seconds[IOAM_HOPS]; /* when the hop received the packet */
	__u32 ns[IOAM_HOPS]; /* IOAM_UNKNOWN: it does not say */
	struct ioam_path_key key;
	struct ioam_path fresh;
	struct ioam_known known;
	__u64 second; /* of the raw traces counted below */
	__u64 reported;
	__u32 len; /* of the option */
	__u32 hops;
	__u32 at; /* word where the next hop begins */
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_walk);
} ioam_walks SEC(".maps");

#define IOAM_PATH_STAT(field)                                                                 \
	do {                                                                                  \
		__u32 zero_ = 0;                                                              \
		struct ioam_path_totals *st_ = bpf_map_lookup_elem(&ioam_path_stats, &zero_); \
		if (st_)                                                                      \
			st_->field++;                                                         \
	} while (0)

/* Where a field is in the data of a node, and ~0, or 0 where the trace lacks it. */
struct ioam_field {
	__u32 at;
	__u32 mask;
};

static __always_inline struct ioam_field ioam_field(__u32 fields, __u32 bit)
{
	struct ioam_field f = {
		.at = ioam_before(fields, bit) / 4,
		.mask = -(fields >> (31 - bit) & 1),
	};

	return f;
}

/* Those that identify a hop, and its times. */
struct ioam_layout {
	struct ioam_field id, ids, seconds, fraction, delay, wide, wides;
};

/* A field as it is in the option, 0 where the trace lacks it. */
static __always_inline __u32 ioam_raw(const struct ioam_walk *walk, __u32 node, struct ioam_field f)
{
	return walk->word[(node + f.at) & (2 * IOAM_WORDS - 1)] & f.mask;
}

static __always_inline __u32 ioam_value(const struct ioam_walk *walk, __u32 node,
					struct ioam_field f)
{
	return bpf_ntohl(ioam_raw(walk, node, f));
}

/* The part of a sum that two words add, the i-th pair. */
static __always_inline __u64 ioam_pair(__u32 i, __u32 low, __u32 high)
{
	i = i * 2 & 127;
	if (i > IOAM_PATH_KEYS - 2) /* unreachable; satisfies the verifier */
		return 0;
	return (__u64)(low + cfg_ioam_path_keys[i]) * (high + cfg_ioam_path_keys[i + 1]);
}

/* Nanoseconds of a fraction; IOAM_UNKNOWN where it can be none. */
static __always_inline __u32 ioam_fraction_ns(__u32 fraction)
{
	if (cfg_ioam_time == IOAM_TIME_NTP)
		return (__u64)fraction * NSEC_PER_SEC >> 32;
	if (cfg_ioam_time == IOAM_TIME_PTP)
		return fraction < NSEC_PER_SEC ? fraction : IOAM_UNKNOWN;
	return fraction < 1000000 ? fraction * 1000 : IOAM_UNKNOWN;
}

/* From one hop to another, ns. Seconds may have wrapped; without them, the nearest second is meant. */
static __always_inline __s64 ioam_between(const struct ioam_walk *walk, __u32 from, __u32 to)
{
	__u32 a = walk->ns[from & (IOAM_HOPS - 1)], b = walk->ns[to & (IOAM_HOPS - 1)];
	__s64 d = (__s32)(b - a);

	if (a == IOAM_UNKNOWN || b == IOAM_UNKNOWN)
		return IOAM_NO_TIME;
	if (bpf_ntohl(walk->word[2]) & IOAM_BIT(2))
		return d + (__s64)NSEC_PER_SEC * (__s32)(walk->seconds[to & (IOAM_HOPS - 1)] -
							 walk->seconds[from & (IOAM_HOPS - 1)]);
	if (d > (__s64)NSEC_PER_SEC / 2)
		return d - (__s64)NSEC_PER_SEC;
	return d < -(__s64)NSEC_PER_SEC / 2 ? d + (__s64)NSEC_PER_SEC : d;
}

/* The times of a hop whose data begin at word `at`. */
static __always_inline void ioam_walk_times(struct ioam_walk *walk, const struct ioam_layout *l,
					    __u32 i, __u32 at)
{
	__u32 delay = ioam_value(walk, at, l->delay) | ~l->delay.mask;
	__u32 ns = ioam_value(walk, at, l->fraction);
	__u32 seconds = ioam_value(walk, at, l->seconds);

	walk->delay[i] = delay & IOAM_DELAY_OVERFLOW ? IOAM_NO_TIME : delay;
	if (ns != IOAM_UNKNOWN || (seconds | ~l->seconds.mask) != IOAM_UNKNOWN)
		ns = ioam_fraction_ns(ns);
	walk->ns[i] = ns | ~l->fraction.mask;
	walk->seconds[i] = seconds;
}

/*
 * Reads the hops of the trace in walk->word, whose node data begin at word walk->at. Its id, hops and
 * times; IOAM_PASS, or a reason. Verified alone; what loops change is in memory, which the verifier
 * does not follow.
 */
__feature(FEATURE_IOAM) __noinline int ioam_walk_hops(struct ioam_walk *walk)
{
	struct ioam_layout l;
	__u32 fields, end, size, hops = 0;
	__u64 sum;

	if (!walk)
		return IOAM_UNREADABLE;
	fields = bpf_ntohl(walk->word[2]);
	size = ioam_node_length(fields);
	end = walk->len / 4;
	l.id = ioam_field(fields, 0);
	l.ids = ioam_field(fields, 1);
	l.seconds = ioam_field(fields, 2);
	l.fraction = ioam_field(fields, 3);
	l.delay = ioam_field(fields, 4);
	l.wide = ioam_field(fields, 8);
	l.wides = ioam_field(fields, 9);
	/* Namespace, Trace-Type, and whether nodes are missing. */
	sum = ioam_pair(0, bpf_ntohl(walk->word[1]) & (0xffff0000 | IOAM_OVERFLOW), fields);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < IOAM_HOPS; i++) {
		__u32 at = WHOLE(walk->at), head, wide = fields & (IOAM_BIT(8) | IOAM_BIT(9));

		barrier_var(wide); /* the verifier would follow both ways on through the loop */
		if (at + size > end || at >= end)
			break;
		sum += ioam_pair(1 + i * 3, ioam_value(walk, at, l.id) & 0xffffff,
				 ioam_raw(walk, at, l.ids));
		if (wide) {
			struct ioam_field low = { l.wide.at + 1, l.wide.mask };
			struct ioam_field out = { l.wides.at + 1, l.wides.mask };

			sum += ioam_pair(2 + i * 3, ioam_value(walk, at, l.wide) & 0xffffff,
					 ioam_raw(walk, at, low));
			sum += ioam_pair(3 + i * 3, ioam_raw(walk, at, l.wides),
					 ioam_raw(walk, at, out));
		}
		ioam_walk_times(walk, &l, i, at);
		hops++;
		at += size;
		head = walk->word[at & (2 * IOAM_WORDS - 1)];
		at += ioam_take(fields, 22, 1 + (bpf_ntohl(head) >> 24));
		WHOLE(walk->at) = at;
	}
	walk->hops = hops;
	walk->key.id = sum;
	if (WHOLE(walk->at) != end)
		return hops == IOAM_HOPS && WHOLE(walk->at) < end ? IOAM_PATH_LONG
								  : IOAM_PATH_MALFORMED;
	return IOAM_PASS;
}

/* The times of links: see struct ioam_cell. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_walk_links(struct ioam_walk *walk)
{
	__u32 last;

	if (!walk)
		return 0;
	last = walk->hops - 1;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < IOAM_HOPS; i++) {
		__s64 d, before;

		if (i >= last)
			break;
		d = ioam_between(walk, i + 1, i);
		before = walk->delay[(i + 1) & (IOAM_HOPS - 1)];
		if (d != IOAM_NO_TIME && before != IOAM_NO_TIME)
			d -= before;
		walk->link[i] = d;
	}
	walk->link[last & (IOAM_HOPS - 1)] = last ? ioam_between(walk, last, 0) : IOAM_NO_TIME;
	return 0;
}

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

/* Puts the trace into the ring. Not 0 where that is full. */
static __noinline int ioam_report(frame_ctx *ctx, const struct ioam_work *w,
				  const struct ioam_walk *walk, __u32 kind)
{
	struct ioam_report *r = bpf_ringbuf_reserve(&ioam_reports, sizeof(*r), 0);

	if (!r)
		return -1;
	r->id = walk->key.id;
	r->time = bpf_ktime_get_ns();
	r->iface = iface_of(ctx);
	r->kind = kind;
	r->len = walk->len;
	__builtin_memcpy(r->option, walk->word, sizeof(r->option));
	__builtin_memset(r->source, 0, sizeof(r->source));
	__builtin_memset(r->destination, 0, sizeof(r->destination));
	frame_load(ctx, w->l3 + offsetof(struct ipv6hdr, saddr), r->source,
		   sizeof(r->source) + sizeof(r->destination));
	bpf_ringbuf_submit(r, 0);
	return 0;
}

/* Differences in this range are those of clocks that agree; others are counted from where they begin. */
#define IOAM_PLAUSIBLE ((__s64)NSEC_PER_SEC)
#define IOAM_BASE_SLACK (1LL << 24)

static __always_inline __s64 ioam_first_base(__s64 d)
{
	return d == IOAM_NO_TIME || (d >= 0 && d < IOAM_PLAUSIBLE) ? 0 : d - IOAM_BASE_SLACK;
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

/* The path's entry for this epoch and CPU, made for its first packet there. */
static __noinline int ioam_path_begin(frame_ctx *ctx, const struct ioam_work *w,
				      struct ioam_walk *walk, __u64 now)
{
	struct ioam_known *known = bpf_map_lookup_elem(&ioam_known, &walk->key.id);
	struct ioam_path *fresh = &walk->fresh;

	if (!known) {
		walk->known.reported = 0;
		for (__u32 i = 0; i < IOAM_HOPS; i++)
			walk->known.base[i] = i < walk->hops ? ioam_first_base(walk->link[i]) : 0;
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

/* Verified alone: 32 calls for each trace. */
__feature(FEATURE_IOAM) __noinline int ioam_cell_add(__u32 index, __s64 ns, __s64 base)
{
	struct ioam_cell *c;
	__u32 bucket;

	c = bpf_map_lookup_elem(&ioam_cells, &index);
	if (!c)
		return 0;
	if (!c->count || ns < c->min)
		c->min = ns;
	if (!c->count || ns > c->max)
		c->max = ns;
	c->count++;
	c->sum += ns;
	bucket = ns <= base ? 0 : delay_bucket(ns - base);
	if (bucket < DELAY_BUCKETS)
		c->bucket[bucket]++;
	return 0;
}

/* Adds the times of a trace to the cells of its path. Verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_path_times(const struct ioam_walk *walk, struct ioam_path *path)
{
	__u32 cell;

	if (!walk || !path)
		return 0;
	cell = path->cell + (walk->key.epoch & 1) * cfg_ioam_cells;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < IOAM_HOPS; i++) {
		if (i >= walk->hops)
			break;
		if (walk->delay[i] != IOAM_NO_TIME)
			ioam_cell_add(cell + 2 * i, walk->delay[i], 0);
		if (walk->link[i] != IOAM_NO_TIME)
			ioam_cell_add(cell + 2 * i + 1, walk->link[i], path->base[i]);
	}
	return 0;
}

/* The trace whose option is at w->at. IOAM_PASS, or why it is in no path. */
static __noinline int ioam_path_add(frame_ctx *ctx, struct ioam_work *w, struct ioam_walk *walk)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct ioam_path *path;
	int rc;

	walk->key.epoch = current_epoch & 1;
	walk->key.cpu = bpf_get_smp_processor_id();
	path = bpf_map_lookup_elem(&ioam_paths, &walk->key);
	if (!path) {
		rc = ioam_path_begin(ctx, w, walk, now);
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
	w->traced = true;
	w->path = walk->key.id;
	w->whole = walk->link[(walk->hops - 1) & (IOAM_HOPS - 1)];
	if (ioam.raw) {
		now = bpf_ktime_get_ns();
		if (!ioam_take_raw(walk, now) || ioam_report(ctx, w, walk, IOAM_REPORT_RAW))
			IOAM_PATH_STAT(raw_lost);
	}
	return IOAM_PASS;
}

/* One option. IOAM_PASS where it is in a path, or not a trace that ends here; else a reason. */
__feature(FEATURE_IOAM) __noinline int ioam_collect_option(frame_ctx *ctx, struct ioam_work *w)
{
	const struct ioam_namespace *ns;
	struct ioam_trace *t;
	struct ioam_walk *walk;
	__u32 zero = 0, len, lengths;
	int rc;

	walk = bpf_map_lookup_elem(&ioam_walks, &zero);
	if (!w || !walk || w->len < IOAM_HEADER - 2)
		return IOAM_PASS;
	len = w->len + 2;
	if (len < IOAM_HEADER || len > IOAM_OPTION_MAX)
		return IOAM_PASS;
	if (frame_load(ctx, w->at, walk->word, ioam_bounded(len)))
		return IOAM_UNREADABLE;
	walk->len = len;
	t = (void *)walk->word;
	if (t->type != IOAM_PREALLOCATED && t->type != IOAM_INCREMENTAL)
		return IOAM_PASS;
	w->space = bpf_ntohs(t->space);
	ns = ioam_namespace(w->copy, w->space);
	if (!ns || !ns->remove || !(ioam_role(ctx, w, w->space) & IOAM_ROLE_INGRESS))
		return IOAM_PASS;
	lengths = bpf_ntohs(t->lengths);
	if (lengths >> IOAM_NODELEN_SHIFT != ioam_node_length(bpf_ntohl(t->fields)) || len & 3)
		return IOAM_PATH_MALFORMED;
	walk->at = IOAM_FIRST_WORD;
	if (t->type == IOAM_PREALLOCATED)
		walk->at += lengths & IOAM_REMAINING;
	rc = ioam_walk_hops(walk);
	if (rc != IOAM_PASS || !walk->hops)
		return rc;
	ioam_walk_links(walk);
	return ioam_path_add(ctx, w, walk);
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

static __noinline int ioam_count_flow(const struct packet *p, const struct ioam_work *w)
{
	struct ioam_flow_key key = {};
	struct ioam_flow *f, first = {};
	__u64 *word = (__u64 *)&key;

	/* By words, as the packet was written: see struct packet. */
	word[0] = p->word[0];
	word[1] = p->word[1];
	word[2] = p->word[2];
	word[3] = p->word[3];
	word[4] = p->word[4];
	word[5] = (p->word[5] & 0xffffffffff) | (__u64)(current_epoch & 1) << 40 |
		  (__u64)bpf_get_smp_processor_id() << 48;
	f = find_or_make(&ioam_flows, &key, &first);
	if (!f) {
		IOAM_PATH_STAT(flows_lost);
		return 0;
	}
	f->path = w->path;
	f->packets += p->gso_packets + 1;
	if (w->whole == IOAM_NO_TIME)
		return 0;
	if (!f->count || w->whole < f->min)
		f->min = w->whole;
	if (!f->count || w->whole > f->max)
		f->max = w->whole;
	f->count++;
	f->sum += w->whole;
	return 0;
}

/* Links the flow of a parsed packet to the path that its trace shows. */
static __always_inline void ioam_link_flow(const struct packet *p)
{
	__u32 zero = 0;
	struct ioam_work *w = bpf_map_lookup_elem(&ioam_works, &zero);

	if (w && w->traced)
		ioam_count_flow(p, w);
}

#endif

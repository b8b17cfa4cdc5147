/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The backend of a connection: the one in the connection table, or else the one in the Maglev table.
 *
 * Input: a connection and its service. Output: the number of a backend; the connection table knows it from now on, as
 * long as the budget for new connections lasts. Called by balance.h and error.h.
 */
#ifndef WAYMARK_BALANCE_PICK_H
#define WAYMARK_BALANCE_PICK_H

#define BALANCE_FORGOTTEN \
	30 /* units after which a connection that is not established gives way at once */

/* The same after a restart, and on all balancers with the same seed. */
static __always_inline __u64 balance_hash(const struct balance_tuple *t, __u64 seed)
{
	const __u64 *word = (const void *)t;
	__u64 hash = seed;

#pragma unroll
	for (int i = 0; i < sizeof(*t) / sizeof(*word); i++) {
		hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	return hash * 0xbf58476d1ce4e5b9ULL;
}

static __always_inline struct balance_backend *balance_backend_of(__u32 number)
{
	return bpf_map_lookup_elem(&balance_backends, &number);
}

/* Whether connections that a backend has may stay there. */
static __always_inline bool balance_serves(__u32 number, __u32 service)
{
	struct balance_backend *b = balance_backend_of(number);

	return b && b->state == BALANCE_UP && b->service == service;
}

/* What the Maglev table says; BALANCE_NOBODY: nobody takes new connections. */
static __always_inline __u32 balance_ring_of(const struct balance_view *v)
{
	__u32 zero = 0, number = v->number;
	void *map = bpf_map_lookup_elem(&balance_rings, &number);
	struct balance_ring *ring = map ? bpf_map_lookup_elem(map, &zero) : NULL;
	__u64 place;

	if (!ring)
		return BALANCE_NOBODY;
	place = (v->hash & 0xffffffff) * BALANCE_RING >> 32;
	barrier_var(place);
	return place < BALANCE_RING ? ring->backend[place] : BALANCE_NOBODY;
}

static __always_inline __u64 balance_entry_of(const struct balance_view *v, __u32 stage)
{
	return (v->hash >> 32 ?: 1) << BALANCE_HASH_SHIFT |
	       (__u64)v->backend << BALANCE_BACKEND_SHIFT | stage << BALANCE_STAGE_SHIFT |
	       (v->now & BALANCE_SEEN_MASK);
}

/* The stage of a connection after one more packet. */
static __always_inline __u32 balance_stage_after(const struct balance_view *v, __u32 stage)
{
	if (v->tcp_flags & (BALANCE_FIN | BALANCE_RST))
		return BALANCE_CLOSING;
	return stage == BALANCE_NEW && !balance_opens(v) ? BALANCE_ESTABLISHED : stage;
}

/* How soon an entry gives way: 0: not at all. Free ones do first, then those that are not established, from the oldest on. */
static __always_inline __u32 balance_rank(__u64 entry, __u32 now)
{
	__u32 stage = entry >> BALANCE_STAGE_SHIFT & 3, age = (now - entry) & BALANCE_SEEN_MASK;

	if (stage == BALANCE_EMPTY)
		return 3 << 16;
	if (stage != BALANCE_ESTABLISHED)
		return (age > BALANCE_FORGOTTEN ? 2 << 16 : 1 << 16) | age;
	return age > cfg_balance_idle ? 2 << 16 | age : 0;
}

/* How many connections this CPU has added to the table lately. */
struct balance_budget {
	__u32 period;
	__u32 used;
};

/* Whether this CPU may add a connection to the table now. */
static __always_inline bool balance_may_add(__u32 now)
{
	struct balance_budget *b = SCRATCH(struct balance_budget, balance_budget);

	if (!b)
		return false;
	if (b->period != now) {
		b->period = now;
		b->used = 0;
	}
	if (b->used >= cfg_balance_new)
		return false;
	b->used++;
	return true;
}

/* Adds a connection in place of the entry that gives way first. */
static __always_inline void balance_add(const struct balance_view *v, struct balance_bucket *bucket)
{
	__u32 best = 0, rank, way = 0, number = v->backend;
	struct balance_load *load;

	if (!balance_may_add(v->now)) {
		BALANCE_COUNT(v, over_budget);
		return;
	}
#pragma unroll
	for (int i = 0; i < BALANCE_WAYS; i++) {
		rank = balance_rank(WHOLE(bucket->way[i]), v->now);
		if (rank > best) {
			best = rank;
			way = i;
		}
	}
	if (!best) {
		BALANCE_COUNT(v, full);
		return;
	}
	WHOLE(bucket->way[way & (BALANCE_WAYS - 1)]) =
		balance_entry_of(v, balance_stage_after(v, BALANCE_EMPTY) ?: BALANCE_NEW);
	load = bpf_map_lookup_elem(&balance_loads, &number);
	if (load)
		load->connections++;
}

/*
 * The way that a connection is in, if it is there. Without a branch for each: with many connections no processor can
 * predict which it is, and would begin nothing else until the bucket has come from memory (7 % of a packet).
 */
static __always_inline __u32 balance_way(const struct balance_bucket *bucket, __u64 tag)
{
	const volatile __u32 *half = (const volatile void *)bucket;
	__u64 way = 0, differ;

#pragma unroll
	for (int i = 1; i < BALANCE_WAYS; i++) {
		differ = half[2 * i + 1] ^ tag; /* of the hash, see enum balance_entry */
		differ = (__s64)(differ - 1) >> 63; /* all bits where it is this one */
		barrier_var(differ); /* else the compiler makes a branch of it */
		way ^= (way ^ i) & differ;
	}
	return way & (BALANCE_WAYS - 1);
}

/* Whether the packet begins a connection in place of the one that an entry has. */
static __always_inline bool balance_begins(const struct balance_view *v, __u64 entry)
{
	return balance_opens(v) && (entry >> BALANCE_STAGE_SHIFT & 3) == BALANCE_CLOSING;
}

/*
 * False: nobody takes the connection. follow: the packet is one of it, which the table learns of; else it only tells of
 * it. Verified alone: it is called at two places.
 */
__feature(FEATURE_BALANCE) __noinline int balance_pick(struct balance_view *v, __u32 follow)
{
	struct balance_bucket *bucket;
	__u64 tag, entry, next;
	__u32 index, way;

	if (!v)
		return false;
	index = (__u32)v->hash & cfg_balance_mask;
	bucket = bpf_map_lookup_elem(&balance_connections, &index);
	if (!bucket)
		return false;
	tag = v->hash >> 32 ?: 1;
	way = balance_way(bucket, tag);
	entry = WHOLE(bucket->way[way]);
	if (entry >> BALANCE_HASH_SHIFT != tag)
		entry = 0;
	if (entry) {
		v->backend = entry >> BALANCE_BACKEND_SHIFT & (BALANCE_BACKENDS - 1);
		if (balance_serves(v->backend, v->number) && !balance_begins(v, entry)) {
			next = balance_entry_of(
				v, balance_stage_after(v, entry >> BALANCE_STAGE_SHIFT & 3));
			if (!follow)
				v->choice = DRY_CHOICE_KNOWN;
			else if (next != entry)
				WHOLE(bucket->way[way]) = next;
			return true;
		}
	}
	v->backend = balance_ring_of(v);
	if (v->backend >= BALANCE_BACKENDS)
		return false;
	if (!follow)
		return true;
	if (entry) {
		WHOLE(bucket->way[way]) = balance_entry_of(v, BALANCE_NEW);
		if (!balance_begins(v, entry))
			BALANCE_COUNT(v, moved);
	} else {
		balance_add(v, bucket);
	}
	return true;
}

#endif

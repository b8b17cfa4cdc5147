/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets that are in no flow, by interface, direction and reason.
 *
 * Input: the packet's context and a reason. Output: one more in the maps
 * `cached_counts` or `counts`, whose sum is the total.
 * Called from every exit of a stage that does not count the packet elsewhere.
 */
#ifndef WAYMARK_COUNT_H
#define WAYMARK_COUNT_H

#include "element.h"

/*
 * Written by the programs, read by the agent; running totals, never cleared.
 * Sized for 340 interfaces with every reason in both directions. When full,
 * flow_stats.counts_full counts on.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct count_key);
	__type(value, struct count_value);
} counts SEC(".maps");

/*
 * In front of `counts`, by CPU. A key keeps its place until the agent forgets the
 * interface; keys that find theirs taken are in `counts`. Running totals, written by
 * the programs and read by the agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct count_cache);
} cached_counts SEC(".maps");

/* Written by the programs, read by the agent. One element. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct table_stats);
} flow_stats SEC(".maps");

#define STAT_ADD(field, n)                                                          \
	do {                                                                        \
		__u32 zero_ = 0;                                                    \
		struct table_stats *st_ = bpf_map_lookup_elem(&flow_stats, &zero_); \
		if (st_)                                                            \
			st_->field += (n);                                          \
	} while (0)

/* Direction and reason in one argument: a struct would take stack of callers, which are deep down. */
#define COUNT_WHAT(direction, reason) ((__u32)(reason) << 1 | (direction))

/* what: COUNT_WHAT(). */
__noinline int count_many(__u32 iface, __u32 what, __u64 packets, __u64 frames, __u64 bytes)
{
	struct count_key key = {
		.iface = iface,
		.direction = what & 1,
		.reason = what >> 1,
	};
	struct count_value *value, first = {};

	value = find_or_make(&counts, &key, &first);
	if (!value) {
		STAT_ADD(counts_full, packets);
		return 0;
	}
	value->packets += packets;
	value->frames += frames;
	value->bytes += bytes;
	return 0;
}

/*
 * Counts in the cache; false where another key has the place, or the CPU has none.
 * It takes 4 ns, the hash map 45: with sampling most packets come here.
 */
static __always_inline bool count_cached(__u32 iface, __u32 direction, enum reason reason,
					 __u64 packets, __u64 frames, __u64 bytes)
{
	struct count_key fields = {
		.iface = iface,
		.direction = direction,
		.reason = reason,
		.used = 1,
	};
	__u32 cpu = bpf_get_smp_processor_id();
	struct count_cache *cache = bpf_map_lookup_elem(&cached_counts, &cpu);
	struct count_slot *slot;
	__u64 key;

	__builtin_memcpy(&key, &fields, sizeof(key));
	if (!cache)
		return false;
	slot = &cache->slot[(iface * 13 + reason * 2 + direction) % COUNT_SLOTS];
	if (slot->key != key) {
		if (slot->key)
			return false;
		slot->key = key;
	}
	slot->value.packets += packets;
	slot->value.frames += frames;
	slot->value.bytes += bytes;
	return true;
}

/* In the cache, else in the map. */
static __always_inline void count_some(__u32 iface, __u32 direction, enum reason reason,
				       __u64 packets, __u64 frames, __u64 bytes)
{
	if (!count_cached(iface, direction, reason, packets, frames, bytes))
		count_many(iface, COUNT_WHAT(direction, reason), packets, frames, bytes);
}

__noinline int count(frame_ctx *ctx, __u32 direction, enum reason reason)
{
	count_some(iface_of(ctx), direction, reason, segments_of(ctx), 1, frame_len(ctx));
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Token buckets. A bucket is one number, the time at which it will be full, after `full` ns without packets. Taking
 * tokens moves that time on by the ns in which they are gathered.
 *
 * Input: a rule with a limit and a packet. Output: whether the packet is beyond the limit.
 */
#ifndef WAYMARK_GATE_LIMIT_H
#define WAYMARK_GATE_LIMIT_H

/* Rounds in which CPUs that share a bucket get in each other's way; then the packet passes. */
#define GATE_ROUNDS 8

/* Takes tokens out of a bucket; true: there are too few, and none is taken. */
static __always_inline bool gate_take(__s64 *bucket, __s64 now, __s64 full, __s64 cost)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < GATE_ROUNDS; i++) {
		__s64 filled = *(volatile __s64 *)bucket, from = filled > now ? filled : now;

		if (cost > full - (from - now))
			return true;
		if (__sync_val_compare_and_swap(bucket, filled, from + cost) == filled)
			return false;
	}
	return false;
}

static __always_inline __u64 gate_nh(__u64 word, __u32 key)
{
	return (__u64)((__u32)word + (__u32)gate.keys[key & 7]) *
	       ((__u32)(word >> 32) + (__u32)(gate.keys[key & 7] >> 32));
}

/* The bucket of a source, which may be another's until now; NULL: unreachable. */
static __always_inline __s64 *gate_source(const struct gate_rule *rule, const struct gate_facts *f,
					  __s64 now)
{
	__u32 bits = f->ipv6 ? rule->bits6 : rule->bits4, line, oldest = 0;
	__u64 high = f->src_high, low = f->src_low, kind, source, was;
	struct gate_sources *s;
	__s64 least;

	high &= bits >= 64 ? ~0ULL : bits ? ~0ULL << (64 - bits & 63) : 0;
	low &= bits <= 64 ? 0 : ~0ULL << (128 - bits & 63);
	kind = (__u64)rule->id << 32 | (f->header ? 2 | f->ipv6 : 0);
	line = mix(gate_nh(high, 0) + gate_nh(low, 1) + gate_nh(kind, 2)) >> 32;
	line &= cfg_gate_source_mask;
	source = mix(gate_nh(high, 3) + gate_nh(low, 4) + gate_nh(kind, 5)) ?: 1;
	s = bpf_map_lookup_elem(&gate_sources, &line);
	if (!s)
		return NULL;
	for (int i = 0; i < GATE_WAYS; i++)
		if (s->way[i].source == source)
			return &s->way[i].filled;
	least = s->way[0].filled;
	for (int i = 1; i < GATE_WAYS; i++) {
		if (s->way[i].filled < least) {
			least = s->way[i].filled;
			oldest = i;
		}
	}
	oldest &= GATE_WAYS - 1;
	was = s->way[oldest].source;
	if (least > now)
		gate_count(GATE_SLOT_FORGOTTEN, f, false);
	if (__sync_val_compare_and_swap(&s->way[oldest].source, was, source) == was)
		s->way[oldest].filled = 0;
	return &s->way[oldest].filled;
}

/* Whether a packet is beyond the limit of a rule. Verified alone. */
__feature(FEATURE_GATE) __noinline int gate_exceeds(__u32 number, const struct gate_facts *f)
{
	const struct gate_rule *rule = bpf_map_lookup_elem(&gate_rules, &number);
	__s64 now, cost, *bucket;
	__u32 slot;

	if (!rule || !f)
		return false;
	now = bpf_ktime_get_ns();
	cost = rule->cost * f->packets;
	if (rule->bytes)
		cost = f->length * 1000000000ULL / rule->rate;
	if (rule->per == GATE_PER_SOURCE) {
		bucket = gate_source(rule, f, now);
	} else {
		slot = rule->slot;
		bucket = bpf_map_lookup_elem(&gate_buckets, &slot);
	}
	return bucket && gate_take(bucket, now, rule->full, cost);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Bans: sources whose packets are dropped before they meet the rules, unless an allow list has them. Bans end by
 * the clock, with or without the agent.
 *
 * Input: what was read of a packet. Output: whether it is dropped, and counters. Called by decide.h.
 */
#ifndef WAYMARK_GATE_BAN_H
#define WAYMARK_GATE_BAN_H

/* Written by the agent: one byte or word at a time changes while programs run. */
volatile struct gate_ban_control gate_ban_control SEC(".data.gateban");

/* Written by the agent, which keeps count of the elements: it is never full. Sized by it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct gate_ban_key);
	__type(value, struct gate_ban);
} gate_bans SEC(".maps");

/* By slot: an element of gate_bans may be replaced, and its counters go on. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_ban_count);
} gate_ban_counts SEC(".maps");

/* The upper bits of half an address, of 0 to 64. */
static __always_inline __u64 gate_upper(__u64 word, __u32 bits)
{
	if (bits >= 64)
		return word;
	return bits ? word & ~0ULL << (64 - bits & 63) : 0;
}

/* 0 for IPv4, 1 for IPv6, in a form whose bounds the verifier sees. */
static __always_inline __u32 gate_family(const struct gate_facts *f)
{
	__u32 n = f->ipv6;

	barrier_var(n);
	return n & 1;
}

static __always_inline void gate_ban_add(const struct gate_ban *ban, const struct gate_facts *f)
{
	__u32 slot = ban->slot;
	struct gate_ban_count *c = bpf_map_lookup_elem(&gate_ban_counts, &slot);

	if (!c)
		return;
	__sync_fetch_and_add(&c->packets, f->packets);
	__sync_fetch_and_add(&c->bytes, f->bytes);
}

/* The ban of a source that is in effect; NULL: none. */
static __always_inline const struct gate_ban *gate_ban_of(const struct gate_facts *f)
{
	__u32 family = gate_family(f), used = gate_ban_control.used[family], bits;
	struct gate_ban_key key = { .ipv6 = family };
	const struct gate_ban *ban;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < GATE_BAN_LENGTHS; i++) {
		if (i >= used)
			return NULL;
		bits = gate_ban_control.bits[family][i & (GATE_BAN_LENGTHS - 1)];
		if (bits == GATE_BAN_FREE)
			continue;
		key.bits = bits;
		key.high = gate_upper(f->src_high, bits);
		key.low = bits > 64 ? gate_upper(f->src_low, bits - 64) : 0;
		ban = bpf_map_lookup_elem(&gate_bans, &key);
		if (ban && (!ban->until || ban->until > bpf_ktime_get_coarse_ns()))
			return ban;
	}
	return NULL;
}

/* Whether a packet is dropped because its source is banned. Verified alone. */
__feature(FEATURE_GATE) __noinline int gate_banned(struct gate_facts *f, __u32 copy)
{
	const struct gate_ban *ban;

	if (!f || !f->header)
		return false;
	ban = gate_ban_of(f);
	if (!ban)
		return false;
	if (gate_find(gate.table[copy & 1].allow[gate_family(f)], f->src_high, f->src_low)) {
		gate_count(GATE_SLOT_EXEMPT, f, false);
		f->exempt = true;
		return false;
	}
	gate_ban_add(ban, f);
	gate_count(GATE_SLOT_BANNED, f, true);
	return true;
}

/* Likewise; where nothing is banned it costs a load. */
static __always_inline bool gate_is_banned(struct gate_facts *f, __u32 copy)
{
	return gate_ban_control.used[gate_family(f)] && gate_banned(f, copy);
}

#endif

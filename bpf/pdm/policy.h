/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which flows are marked. Nothing is that policy does not name.
 *
 * Input: a parsed packet on its way out. Output: the policy that names it. Called for
 * the first packet of a flow, and again after policies changed.
 */
#ifndef WAYMARK_PDM_POLICY_H
#define WAYMARK_PDM_POLICY_H

/*
 * Policies by longest prefix of the destination; a prefix has those of all
 * shorter ones, too. Written by the agent, read by the programs. Sized for both
 * sets of POLICIES_MAX policies and the prefixes that they don't mean.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8 * POLICIES_MAX);
	__type(key, struct policy_prefix);
	__type(value, struct policy_mask);
} policy_prefixes SEC(".maps");

/* The rest of a policy; index: set * POLICIES_MAX + policy. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * POLICIES_MAX);
	__type(key, __u32);
	__type(value, struct policy_rule);
} policy_rules SEC(".maps");

/*
 * Which policies apply on an interface (flow_slot.iface). Written by the agent
 * when it attaches and when policies change; an interface that is not here marks
 * nothing. One element serves both sets, so a change of policies needs no more
 * elements than there are interfaces.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct policy_iface);
} policy_ifaces SEC(".maps");

/*
 * Flows that no policy names, so that their packets cost no more than this
 * look-up: by a hash, the hash itself mixed with the generation. Written and
 * read by the programs; two flows that meet ask the policies in turn. Behind them is
 * the index of places: see near.h. One map, since a program can have 64 at most.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* see enum pdm_word where PDM is on */
	__type(key, __u32);
	__type(value, __u64);
} pdm_words SEC(".maps");

/*
 * Raised when policies change; its lowest bit is the set that counts. Written by
 * the agent.
 */
volatile __u32 policy_generation SEC(".data.policy");

/* Results in addition to the number of a policy. */
#define POLICY_NONE (-1)
#define POLICY_HELD (-2)

/*
 * The number of the first policy of left, or POLICY_NONE if it does not name the
 * packet. A function of its own, verified alone.
 */
__feature(FEATURE_PDM) __noinline
	int pdm_policy_first(__u64 left, __u32 generation, const struct packet *p, __u64 now)
{
	__u32 id = bit_length(left & -left) - 1, index = generation % 2 * POLICIES_MAX + id;
	struct policy_rule *rule = bpf_map_lookup_elem(&policy_rules, &index);

	if (!p || !rule || now >= rule->until ||
	    !policy_matches(rule, p->id.proto, bpf_ntohs(p->id.sport), bpf_ntohs(p->id.dport)))
		return POLICY_NONE;
	return id;
}

/*
 * The policy that names the packet now, and when it ends; or one of the above.
 * prefix is memory for a key.
 */
static __noinline int policy_of(const struct packet *p, __u32 generation, __u64 now,
				struct policy_prefix *prefix, __u64 *until)
{
	__u32 iface = p->id.iface;
	struct policy_iface *here;
	struct policy_rule *rule;
	struct policy_mask *mask;
	int id = POLICY_NONE;
	__u64 left, named;
	__u32 index;

	here = bpf_map_lookup_elem(&policy_ifaces, &iface);
	if (!here)
		return POLICY_NONE;
	prefix->bits = 32 + 128;
	prefix->set = generation & 1;
	__builtin_memcpy(prefix->addr, p->id.daddr, 16);
	mask = bpf_map_lookup_elem(&policy_prefixes, prefix);
	if (!mask)
		return POLICY_NONE;
	named = mask->named;
	left = (named | mask->held) & here->applies[generation & 1];

#pragma clang loop unroll(disable)
	for (int i = 0; i < POLICIES_MAX && left; i++) {
		id = pdm_policy_first(left, generation, p, now);
		if (id >= 0)
			break;
		left &= left - 1;
	}
	index = (generation & 1) * POLICIES_MAX + id;
	rule = id < 0 ? NULL : bpf_map_lookup_elem(&policy_rules, &index);
	if (!rule)
		return POLICY_NONE;
	*until = rule->until;
	return named >> (id & 63) & 1 ? id : POLICY_HELD;
}

static __always_inline __u64 unnamed_tag(__u64 hash, __u32 generation)
{
	return hash ^ (generation + 1) * 0x9e3779b97f4a7c15ULL;
}

static __always_inline __u64 *unnamed_slot(__u64 hash)
{
	__u32 index = hash >> (64 - UNNAMED_BITS);

	return bpf_map_lookup_elem(&pdm_words, &index);
}

#endif

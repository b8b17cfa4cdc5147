/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which insertion a packet gets.
 *
 * Input: a parsed packet of IPv6 that leaves. Output: an insertion, for k of n packets that its policy names,
 * and ioam_work with what write.h needs; or NULL. The answer is kept by flow, so that a packet that
 * no policy names costs one look-up in an array. Called by insert.h.
 */
#ifndef WAYMARK_IOAM_CHOOSE_H
#define WAYMARK_IOAM_CHOOSE_H

#include "match.h"

/* Both copies of each, one after the other. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_insertion);
} ioam_insertions SEC(".maps");

/* Policies as in pdm/policy.h, of which the first wins: those with the longest prefix are first. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct policy_prefix);
	__type(value, struct policy_mask);
} ioam_prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct policy_rule);
} ioam_rules SEC(".maps");

/* By ioam_insertion.slot. Written by the programs, cleared by the agent for a new insertion. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_insertion_state);
} ioam_insertion_states SEC(".maps");

/*
 * Answers by flow: the low byte is the answer, the rest tells flows, interfaces and configurations
 * apart. Written and read by the programs; two flows that meet ask the policies in turn.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* IOAM_ANSWERS where there are insertions */
	__type(key, __u32);
	__type(value, __u64);
} ioam_answers SEC(".maps");

/* An answer: a number of an insertion, and what it is to the packet. */
#define IOAM_ANSWER_INSERTION 0x1f
#define IOAM_ANSWER_ADDRESS 0x20 /* multicast or link-local, which the policy does not mean */
#define IOAM_ANSWER_FORWARDED 0x40 /* only the source of a packet may insert (RFC 8200 section 4) */
#define IOAM_ANSWER_NONE 0x80
#define IOAM_ANSWER_MASK 0xffULL

static __always_inline __u32 ioam_answer_slot(const struct packet *p)
{
	return p->hash >> (64 - IOAM_ANSWER_BITS);
}

/* The first of some insertions that names the packet, as a bit's number; below 0: none. */
__feature(FEATURE_IOAM) __noinline
	int ioam_policy_first(__u32 left, __u32 copy, const struct packet *p)
{
	__u32 id, index;
	struct policy_rule *rule;

	if (!p)
		return -1;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_INSERTIONS && left; i++, left &= left - 1) {
		id = bit_length(left & -left) - 1;
		index = (copy & 1) * IOAM_INSERTIONS + id;
		rule = bpf_map_lookup_elem(&ioam_rules, &index);
		if (rule && policy_matches(rule, p->id.proto, bpf_ntohs(p->id.sport),
					   bpf_ntohs(p->id.dport)))
			return id;
	}
	return -1;
}

/* What the policies say of a packet. */
static __always_inline __u32 ioam_ask(const struct packet *p, struct ioam_work *w, bool forwarded)
{
	struct policy_prefix prefix; /* Linux 6.1 takes no key in an argument */
	struct policy_mask *mask;
	struct ioam_iface *known;
	struct ioam_port *port;
	__u32 iface, here, named;
	int id;

	iface = p->id.iface;
	known = bpf_map_lookup_elem(&ioam_ifaces, &iface);
	if (!known)
		return IOAM_ANSWER_NONE;
	port = &known->copy[w->copy & 1];
	prefix.bits = 32 + 128;
	prefix.set = w->copy & 1;
	__builtin_memcpy(prefix.addr, p->id.daddr, sizeof(prefix.addr));
	mask = bpf_map_lookup_elem(&ioam_prefixes, &prefix);
	if (!mask)
		return IOAM_ANSWER_NONE;
	here = forwarded ? port->forwarded : port->own;
	named = mask->named | mask->held;
	id = ioam_policy_first(named & here, w->copy, p);
	if (id >= 0)
		return mask->named >> (id & 31) & 1 ? id : id | IOAM_ANSWER_ADDRESS;
	id = ioam_policy_first(named & (port->own | port->forwarded), w->copy, p);
	return id >= 0 ? id | IOAM_ANSWER_FORWARDED : IOAM_ANSWER_NONE;
}

/* k of each n packets of a CPU, each equally likely (Knuth's selection sampling). */
static __always_inline bool ioam_is_due(const struct ioam_insertion *in,
					struct ioam_insertion_state *s)
{
	__u32 x = s->random ?: bpf_get_prandom_u32() | 1;
	bool due;

	if (!s->left || s->of != in->of || s->take != in->take) {
		s->of = s->left = in->of;
		s->take = s->due = in->take;
	}
	x ^= x << 13; /* xorshift32, as in is_sampled() */
	x ^= x >> 17;
	x ^= x << 5;
	s->random = x;
	due = (__u64)x * s->left >> 32 < s->due;
	s->left--;
	s->due -= due;
	return due;
}

/* The interface: nearly always that of the packet before. */
static __always_inline void ioam_leave_by(struct ioam_work *w, __u32 iface)
{
	__u32 generation = ioam.generation[w->copy & 1];
	struct ioam_iface *known;

	if (w->out_iface != iface || w->out_generation != generation) {
		known = bpf_map_lookup_elem(&ioam_ifaces, &iface);
		if (!known)
			return;
		w->out = known->copy[w->copy & 1];
		w->out_iface = iface;
		w->out_generation = generation;
	}
	w->port = w->out;
}

/* What write.h needs of a packet. */
static __always_inline void ioam_prepare(struct __sk_buff *skb, const struct packet *p,
					 struct ioam_work *w, const struct ioam_insertion *in)
{
	__u32 iface = cfg_iface + skb->ingress_ifindex;
	struct ioam_iface *known;

	ioam_leave_by(w, p->id.iface);
	w->from = (struct ioam_port){ .id = 0xffff, .wide = IOAM_UNKNOWN };
	known = skb->ingress_ifindex ? bpf_map_lookup_elem(&ioam_ifaces, &iface) : NULL;
	if (known)
		w->from = known->copy[w->copy & 1];
	w->l3 = p->l3_offset;
	w->timed = w->received > IOAM_STAMP_NO_TIME;
	if (!w->timed)
		w->received = 0; /* read once, when it is needed */
	w->numbered = 0;
	if (!(in->flags & IOAM_INSERTION_SEQUENCE))
		return;
	w->flow = p->hash >> 32;
	w->sequence.insertion = in->id;
	if (in->mode == IOAM_IP6IP6) {
		__builtin_memcpy(w->sequence.source, in->source, 16);
		__builtin_memcpy(w->sequence.destination, in->destination, 16);
	} else {
		__builtin_memcpy(w->sequence.source, p->id.saddr, 16);
		__builtin_memcpy(w->sequence.destination, p->id.daddr, 16);
	}
}

/* The same, kept for the packets that follow. Verified alone, as all that is rare. */
__feature(FEATURE_IOAM) __noinline
	int ioam_learn(const struct packet *p, struct ioam_work *w, bool forwarded, __u64 tag)
{
	__u32 slot, answer;
	__u64 *known;

	if (!p || !w)
		return IOAM_ANSWER_NONE;
	answer = ioam_ask(p, w, forwarded);
	slot = ioam_answer_slot(p);
	known = bpf_map_lookup_elem(&ioam_answers, &slot);
	if (known)
		*known = (tag & ~IOAM_ANSWER_MASK) | answer;
	return answer;
}

static __always_inline __u32 ioam_index(const struct ioam_work *w, __u32 answer)
{
	return (w->copy & 1) * IOAM_INSERTIONS + (answer & IOAM_ANSWER_INSERTION);
}

/* A packet that a policy names: whether something is inserted into it. */
__feature(FEATURE_IOAM) __noinline int ioam_named(struct __sk_buff *skb, const struct packet *p,
						  struct ioam_work *w, __u32 answer)
{
	struct ioam_insertion_state *s;
	struct ioam_insertion *in;
	__u32 index;

	if (!p || !w)
		return false;
	index = ioam_index(w, answer);
	in = bpf_map_lookup_elem(&ioam_insertions, &index);
	if (!in || !(in->flags & IOAM_INSERTION_USED))
		return false;
	if (answer > IOAM_ANSWER_INSERTION) {
		ioam_count(skb, DIRECTION_EGRESS,
			   answer & IOAM_ANSWER_ADDRESS ? IOAM_ADDRESS : IOAM_FORWARDED, in->space);
		return false;
	}
	index = in->slot;
	s = bpf_map_lookup_elem(&ioam_insertion_states, &index);
	if (!s)
		return false;
	s->named++;
	if (in->flags & IOAM_INSERTION_PART && !ioam_is_due(in, s))
		return false;
	s->chosen++;
	ioam_prepare(skb, p, w, in);
	return true;
}

/* The insertion of a packet; NULL: none. Nothing more than this for packets that no policy names. */
static __always_inline const struct ioam_insertion *
ioam_choose(struct __sk_buff *skb, const struct packet *p, struct ioam_work *w)
{
	__u32 copy = ioam.copy & 1, slot = ioam_answer_slot(p), answer, index;
	bool forwarded = skb->ingress_ifindex;
	__u64 *known, tag;

	if (!ioam.insertions[copy])
		return NULL;
	known = bpf_map_lookup_elem(&ioam_answers, &slot);
	if (!known)
		return NULL;
	tag = p->hash ^ (ioam.generation[copy] + 1) * 0x9e3779b97f4a7c15ULL ^
	      (p->id.iface * 2ULL + forwarded) * 0xbf58476d1ce4e5b9ULL;
	answer = *known & IOAM_ANSWER_MASK;
	w->copy = copy;
	if ((*known ^ tag) & ~IOAM_ANSWER_MASK)
		answer = ioam_learn(p, w, forwarded, tag);
	if (answer == IOAM_ANSWER_NONE || !ioam_named(skb, p, w, answer))
		return NULL;
	index = ioam_index(w, answer);
	return bpf_map_lookup_elem(&ioam_insertions, &index);
}

#endif

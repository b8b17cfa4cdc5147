/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A keyed hash of flows: nobody who doesn't know the keys can choose packets that
 * meet in the tables.
 *
 * Input: what identifies a flow. Output: 64 bits, well mixed in the high half.
 *
 * It is NH (RFC 4418, 5.2.2): products of sums of 32 bits, so that two
 * identities collide with a probability of 2^-32 for whoever does not know the
 * keys. Products of 64 bits would keep what differs in upper bits only in the
 * upper bits, where any two addresses that are spelt out in full cancel out.
 */
#ifndef WAYMARK_HASH_H
#define WAYMARK_HASH_H

#include "hash_key.h"

static __always_inline __u64 nh(__u32 a, __u32 b, __u32 key)
{
	return (__u64)keyed(a, key) * keyed(b, key + 1);
}

/* Both halves of 64 bits. */
static __always_inline __u64 nh_word(const volatile void *word, __u32 key)
{
	const volatile __u32 *half = word;

	return nh(half[0], half[1], key);
}

/* Keeps all bits, and has them all in the high half. */
static __always_inline __u64 mix(__u64 h)
{
	return (h ^ h >> 32) * 0x9e3779b97f4a7c15ULL;
}

/*
 * Volatile: what was just written is read again, instead of kept in registers
 * that all else needs.
 */
static __always_inline __u64 hash_flow(const volatile struct flow_slot *id)
{
	const volatile __u8 *saddr = id->saddr, *daddr = id->daddr;
	__u64 hash = nh_word(&id->sport, 8) + nh(id->meta, id->proto, 10);

	if (id->meta >> META_IPV6_SHIFT & 1)
		hash += nh_word(saddr, 0) + nh_word(saddr + 8, 2) + nh_word(daddr, 4) +
			nh_word(daddr + 8, 6);
	else
		hash += nh(*(const volatile __u32 *)(saddr + 12),
			   *(const volatile __u32 *)(daddr + 12), 0);
	return mix(hash);
}

#endif

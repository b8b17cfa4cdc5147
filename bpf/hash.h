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

/* Keeps all bits, and has them all in the high half. */
static __always_inline __u64 mix(__u64 h)
{
	return (h ^ h >> 32) * 0x9e3779b97f4a7c15ULL;
}

/* Both halves of 64 bits. */
static __always_inline __u64 nh_word(const volatile void *word, __u32 key)
{
	const volatile __u32 *half = word;

	return nh(half[0], half[1], key);
}

/* Of an identity of a flow, of which half(n) are 32 bits, from its start. */
#define HASH_OF(half)                                                                      \
	({                                                                                 \
		__u64 hash_ = nh(half(8), half(9), 8) + nh(half(10), half(11) & 0xff, 10); \
		if (half(10) >> META_IPV6_SHIFT & 1)                                       \
			hash_ += nh(half(0), half(1), 0) + nh(half(2), half(3), 2) +       \
				 nh(half(4), half(5), 4) + nh(half(6), half(7), 6);        \
		else                                                                       \
			hash_ += nh(half(3), half(7), 0);                                  \
		mix(hash_);                                                                \
	})

/*
 * Volatile: what was just written is read again, instead of kept in registers
 * that all else needs.
 */
static __always_inline __u64 hash_flow(const volatile struct flow_slot *id)
{
#define HASH_HALF(n) ((n) == 11 ? id->proto : ((const volatile __u32 *)id)[n])
	return HASH_OF(HASH_HALF);
#undef HASH_HALF
}

/* The same of what is in registers. */
static __always_inline __u64 hash_words(const __u64 *word)
{
#define HASH_HALF(n) ((__u32)(word[(n) / 2] >> 32 * ((n) % 2)))
	return HASH_OF(HASH_HALF);
#undef HASH_HALF
}

#endif

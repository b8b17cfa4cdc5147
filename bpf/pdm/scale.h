/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Numbers of PDM: deltas with their scale (RFC 8250 section 3.3). Input: nanoseconds.
 * Output: what is on the wire, and back. Integers only, the same functions as in wire/pdm.
 */
#ifndef WAYMARK_PDM_SCALE_H
#define WAYMARK_PDM_SCALE_H

#include "histogram.h"

/* 1 ns = 10^9 attoseconds = 5^9 * 2^9, and the factors of two are all scale. */
#define FIVE_TO_THE_9 1953125ULL
#define TWO_TO_THE 9

/* Times below 2^43 ns (2 h 26 min) times 5^9 fit in 64 bits. */
#define EXACT_BITS 43

struct pdm_delta {
	__u16 delta;
	__u8 scale;
};

/*
 * Bits of v beyond 16. BPF has no instruction that counts them, and clang counts in 35, which wait for each
 * other. Times of a flow differ little, so that a processor predicts most of these branches.
 */
static __always_inline __u32 bits_beyond_16(__u64 v)
{
	__u32 n = 0;

	v >>= 16;
	if (v >> 32) {
		n = 32;
		v >>= 32;
	}
	if (v >> 16) {
		n += 16;
		v >>= 16;
	}
	if (v >> 8) {
		n += 8;
		v >>= 8;
	}
	if (v >> 4) {
		n += 4;
		v >>= 4;
	}
	/* Of four bits, in one word: 0, 1, 2, 2, 3 four times, 4 eight times. */
	return n + (0x4444444433332210ULL >> (v << 2) & 7);
}

static __always_inline struct pdm_delta top16(__u64 v, __u32 dropped)
{
	__u32 shift = bits_beyond_16(v);
	struct pdm_delta d = { .delta = v >> shift, .scale = shift + dropped };

	return d;
}

static __always_inline struct pdm_delta pdm_scale(__u64 ns)
{
	struct pdm_delta zero = {};

	if (!ns)
		return zero;
	if (ns < 1ULL << EXACT_BITS)
		return top16(ns * FIVE_TO_THE_9, TWO_TO_THE);
	/* The highest 53 of 85 bits, after the carry of the lowest 32. */
	return top16((ns >> 32) * FIVE_TO_THE_9 + ((ns & 0xffffffff) * FIVE_TO_THE_9 >> 32),
		     TWO_TO_THE + 32);
}

/* Deltas up to 292 years; longer ones, which no host can mean, are TOO_LONG. */
#define NS_TOO_LONG (~0ULL)

static __always_inline __u64 pdm_nanoseconds(__u16 delta, __u8 scale)
{
	const __u64 round = FIVE_TO_THE_9 / 2, max = (1ULL << 63) - 1;
	__u64 v, q, ns;
	__u32 rest;

	if (!delta || scale < TWO_TO_THE)
		return 0;
	if (scale <= TWO_TO_THE + 47)
		return (((__u64)delta << (scale - TWO_TO_THE)) + round) / FIVE_TO_THE_9;
	/* Divide first, then shift quotient and remainder by the rest. */
	v = (__u64)delta << 47;
	rest = scale - TWO_TO_THE - 47;
	q = v / FIVE_TO_THE_9;
	if (rest > 36 || bit_length(q) + rest > 63)
		return NS_TOO_LONG;
	ns = (q << rest) + (((v % FIVE_TO_THE_9) << rest) + round) / FIVE_TO_THE_9;
	return ns > max ? NS_TOO_LONG : ns;
}

#endif

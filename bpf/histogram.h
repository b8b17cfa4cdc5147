/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Buckets of histograms of delays. Input: nanoseconds. Output: an index below DELAY_BUCKETS. The
 * same function as in internal/inband.
 */
#ifndef WAYMARK_HISTOGRAM_H
#define WAYMARK_HISTOGRAM_H

static __always_inline __u32 bit_length(__u64 v)
{
	return v ? 64 - __builtin_clzll(v) : 0;
}

/* 1 where a < b, else 0, without a jump: a verifier follows both ways of one. The difference fits 63 bits. */
static __always_inline __u64 is_less(__s64 a, __s64 b)
{
	__u64 difference = (__u64)a - (__u64)b;

	barrier_var(difference); /* or the compiler makes a jump of it */
	difference >>= 63;
	barrier_var(difference);
	return difference;
}

/* The number, or 0 where it is below that; likewise. */
static __always_inline __u64 at_least_0(__s64 n)
{
	__s64 sign = n >> 63;

	barrier_var(sign);
	return n & ~sign;
}

static __always_inline __u32 delay_bucket(__u64 ns)
{
	__u32 top = bit_length(ns | 1) - 1, sub, bucket;
	__u64 small = is_less(top, DELAY_MIN_BITS), over;

	sub = ns >> ((top - DELAY_SUB_BITS) & 63) & ((1 << DELAY_SUB_BITS) - 1);
	bucket = ((top - DELAY_MIN_BITS) << DELAY_SUB_BITS) + sub + 1;
	bucket &= (__u32)(small - 1);
	over = is_less(DELAY_BUCKETS - 1, bucket);
	return (bucket & (__u32)(over - 1)) | (DELAY_BUCKETS - 1) * (__u32)over;
}

static __always_inline void histogram_count(__u32 buckets[DELAY_BUCKETS], __u64 ns)
{
	__u64 index = delay_bucket(ns);

	/* What is compared has to be what becomes the index (verifier of Linux 6.1). */
	barrier_var(index);
	if (index < DELAY_BUCKETS)
		buckets[index]++;
}

#endif

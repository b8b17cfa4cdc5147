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

static __always_inline __u32 delay_bucket(__u64 ns)
{
	__u32 top, sub, bucket;

	if (ns < 1 << DELAY_MIN_BITS)
		return 0;
	top = bit_length(ns) - 1;
	sub = ns >> (top - DELAY_SUB_BITS) & ((1 << DELAY_SUB_BITS) - 1);
	bucket = ((top - DELAY_MIN_BITS) << DELAY_SUB_BITS) + sub + 1;
	/* What is compared has to be what becomes the index (verifier of Linux 6.1). */
	asm volatile("" : "+r"(bucket));
	return bucket < DELAY_BUCKETS ? bucket : DELAY_BUCKETS - 1;
}

#endif

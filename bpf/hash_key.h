/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Keys of the hash, as operands of instructions: with keys in .rodata an IPv6 packet
 * costs 2 ns more, an IPv4 packet as much (waymark-bench datapath measures both).
 *
 * Input: a word and the number of a key. Output: their sum. Called by hash.h only.
 */
#ifndef WAYMARK_HASH_KEY_H
#define WAYMARK_HASH_KEY_H

/* x and a key. key: constant, below HASH_KEYS. */
static __always_inline __u32 keyed(__u32 x, __u32 key)
{
	asm("%0 += %1" : "+w"(x) : "i"(HASH_KEY + key));
	return x;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * hash.h a second time, as rodata_hash_flow(), with keys that are loaded from .rodata.
 * bench.bpf.c compares the two.
 */
#ifndef WAYMARK_TEST_HASH_RODATA_H
#define WAYMARK_TEST_HASH_RODATA_H

const volatile __u32 cfg_hash_keys[HASH_KEYS] = {};

#define keyed(x, key) ((x) + cfg_hash_keys[key])
#define nh rodata_nh
#define nh_word rodata_nh_word
#define mix rodata_mix
#define hash_flow rodata_hash_flow
#define hash_words rodata_hash_words
#undef WAYMARK_HASH_H
#include "hash.h"
#undef keyed
#undef nh
#undef nh_word
#undef mix
#undef hash_flow
#undef hash_words

#endif

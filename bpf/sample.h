/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sampling: one packet in so many is counted.
 *
 * Input: features of the program. Output: whether this packet is counted. Called once for each packet, by
 * probe.h, or by gate/drop.h for one that goes no further.
 */
#ifndef WAYMARK_SAMPLE_H
#define WAYMARK_SAMPLE_H

/* State of sampling, by CPU. Written and read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sample_state SEC(".maps");

/*
 * One packet in so many is counted; of all others only how many they are. The
 * generator is xorshift32 (Marsaglia), seeded by the kernel's, which costs 9 ns more.
 */
static __always_inline bool is_sampled(__u32 features)
{
	__u32 zero = 0, *state, x;

	if (!(features & FEATURE_SAMPLING))
		return true;
	state = bpf_map_lookup_elem(&sample_state, &zero);
	if (!state) /* unreachable; satisfies the verifier */
		return true;
	x = *state ?: bpf_get_prandom_u32() | 1;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	*state = x;
	return x <= cfg_sample_below;
}

#endif

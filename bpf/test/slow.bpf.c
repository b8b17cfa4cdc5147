// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A slow node: each packet waits where it arrives.
 *
 * Input: a packet at tc ingress, after TCX programs. Output: the same packet, later. The lab attaches
 * it to a host that is to be slow. The CPU is busy meanwhile, as with a long list of rules.
 */
#include "prelude.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __u64 slow_ns;

/* The longest delay in readings of the clock, each of which takes 20 ns or more. */
#define READINGS (1 << 20)

static long not_yet(__u32 i, __u64 *until)
{
	return bpf_ktime_get_ns() >= *until;
}

SEC("tc")
int lab_slow(struct __sk_buff *skb)
{
	__u64 until = bpf_ktime_get_ns() + slow_ns;

	bpf_loop(READINGS, not_yet, &until, 0);
	return TC_ACT_UNSPEC;
}

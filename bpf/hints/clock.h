/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The time of a device as CLOCK_MONOTONIC.
 *
 * Input: the receive time that the driver has of a packet, or 0; and the time by the host's clock.
 * Output: when the packet was received. Where the clock of the device is not known to run with that
 * of the host, or the result cannot be, it is the time by the host's clock.
 */
#ifndef WAYMARK_HINTS_CLOCK_H
#define WAYMARK_HINTS_CLOCK_H

/* No packet waits for so long in a queue: it is another clock. */
#define HINTS_OLDEST 100000000ULL

/* Written by user space, while programs run; a word each. Elements are slots. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct hints_clock);
} hints_clocks SEC(".maps");

static __always_inline __u64 hints_monotonic(__u64 time, __u64 now)
{
	__u32 slot = hints_slot;
	struct hints_clock *c = bpf_map_lookup_elem(&hints_clocks, &slot);
	__s64 offset;

	if (!time || !c)
		return now;
	offset = c->to_monotonic;
	if (!offset || now - (time + offset) > HINTS_OLDEST)
		return now;
	return time + offset;
}

#endif

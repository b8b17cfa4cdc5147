/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What is measured of an interface: its queues, and when its NIC received a packet.
 *
 * Input: a packet at that interface. Output: the queues as the agent read them last; a receive time. Called
 * by node.h for packets that arrive; by egress.h, write.h and direct.h for those that leave.
 */
#ifndef WAYMARK_IOAM_MEASURE_H
#define WAYMARK_IOAM_MEASURE_H

#include "hints/clock.h"

/* By flow_slot.iface. Written by the agent, which replaces whole elements. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct ioam_queue);
} ioam_queues SEC(".maps");

/* By flow_slot.iface. Written and read by the programs, deleted by the agent with the interface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct hints_clock);
} ioam_nics SEC(".maps");

/* Of the interface where the packet leaves; all ones where nothing recent is known. */
static __always_inline void ioam_queue_of(frame_ctx *ctx, struct ioam_queue *q)
{
	__u32 iface = iface_of(ctx);
	struct ioam_queue *known = bpf_map_lookup_elem(&ioam_queues, &iface);

	q->depth = q->occupancy = 0xffffffff;
	if (!known || bpf_ktime_get_coarse_ns() > known->until)
		return;
	q->depth = known->depth;
	q->occupancy = known->occupancy;
}

/* When the NIC received a packet, on the kernel's clock. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_nic_received(frame_ctx *ctx, __u64 *received)
{
	__u64 now = bpf_ktime_get_ns(), at = frame_nic_time(ctx);
	struct hints_clock *c, first = {};
	__u32 iface = iface_of(ctx);

	if (!received)
		return 0;
	*received = now;
	c = at ? find_or_make(&ioam_nics, &iface, &first) : NULL;
	if (c)
		*received = hints_host_time(c, now, at);
	return 0;
}

#endif

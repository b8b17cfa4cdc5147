/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What is measured of an interface: its queues, and when its NIC received a packet.
 *
 * Input: a packet at that interface. Output: the queues as the agent read them last; a receive time. Called
 * by node.h for packets that arrive; by egress.h, write.h and direct.h for those that leave.
 */
#ifndef WAYMARK_IOAM_MEASURE_H
#define WAYMARK_IOAM_MEASURE_H

/* By flow_slot.iface. Written by the agent, which replaces whole elements. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct ioam_queue);
} ioam_queues SEC(".maps");

/* How far the clock of a NIC is behind that of the kernel: least differences in which packets were seen, ns. */
struct ioam_nic {
	__u64 window; /* when the running one began */
	__s64 best; /* in it */
	__s64 last; /* in the one before */
};

/* By flow_slot.iface. Written and read by the programs, deleted by the agent with the interface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct ioam_nic);
} ioam_nics SEC(".maps");

/* Clocks that run apart by 50 ppm differ by 10 µs more after two of them. */
#define IOAM_NIC_WINDOW (100 * 1000 * 1000ULL)
/* Between NIC and program; beyond, the clock was set. */
#define IOAM_NIC_LATE (10 * 1000 * 1000LL)

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

/*
 * When the NIC received a packet, on the kernel's clock. The packet that took the least time from the NIC to here
 * shows how far the clocks are apart; all others are as much earlier than now as they took longer. So it does not
 * matter what the NIC's clock shows, and no time is later than the kernel's own. Verified alone.
 */
__feature(FEATURE_IOAM) __noinline int ioam_nic_received(frame_ctx *ctx, __u64 *received)
{
	__u64 now = bpf_ktime_get_ns(), at = frame_nic_time(ctx);
	struct ioam_nic *n, first = {};
	__s64 behind = now - at, late;
	__u32 iface = iface_of(ctx);

	if (!received)
		return 0;
	*received = now;
	n = at ? find_or_make(&ioam_nics, &iface, &first) : NULL;
	if (!n)
		return 0;
	if (now - n->window > IOAM_NIC_WINDOW) {
		n->last = now - n->window > 2 * IOAM_NIC_WINDOW ? behind : n->best;
		n->best = behind;
		n->window = now;
	} else if (behind < n->best) {
		n->best = behind;
	}
	late = behind - (n->best < n->last ? n->best : n->last);
	if (late >= IOAM_NIC_LATE)
		n->best = n->last = behind;
	else if (late > 0)
		*received = now - late;
	return 0;
}

#endif

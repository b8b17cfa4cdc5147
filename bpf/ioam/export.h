/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What leaves a node because packets ask for it: the limits, and the ring in which the agent gets it.
 *
 * Input: a limit of this CPU. Output: whether one more may leave. Called by direct.h and loopback.h.
 */
#ifndef WAYMARK_IOAM_EXPORT_H
#define WAYMARK_IOAM_EXPORT_H

/* struct ioam_direct_record, struct ioam_copy. Written by the programs, read by the agent. Full: counted as lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ioam_direct_records SEC(".maps");

/* Of one CPU. */
struct ioam_limit {
	__u64 second; /* the running one */
	__u32 taken; /* in it */
	__u32 credit; /* packets that have been seen and not used up: what leaves takes `every` */
};

#define IOAM_LIMIT_SAVED 64 /* times `every`, of credit that a CPU saves */

enum ioam_limited {
	IOAM_LIMIT_OK,
	IOAM_LIMIT_SHARE, /* one in so many packets */
	IOAM_LIMIT_RATE, /* so many per second */
};

/* Packets were seen. */
static __always_inline void ioam_limit_add(struct ioam_limit *l, __u32 packets, __u32 every)
{
	__u64 credit = (__u64)l->credit + packets, most = (__u64)every * IOAM_LIMIT_SAVED;

	l->credit = credit < most ? credit : most;
}

static __always_inline int ioam_limit_take(struct ioam_limit *l, __u32 every, __u32 rate)
{
	__u64 second = bpf_ktime_get_ns() / NSEC_PER_SEC;

	if (l->credit < every)
		return IOAM_LIMIT_SHARE;
	if (l->second != second) {
		l->second = second;
		l->taken = 0;
	}
	if (l->taken >= rate)
		return IOAM_LIMIT_RATE;
	l->taken++;
	l->credit -= every;
	return IOAM_LIMIT_OK;
}

#endif

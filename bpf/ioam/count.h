/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What was done with IOAM options, and why nothing was.
 *
 * Input: a reason and a namespace. Output: one more in ioam_counts, or in ioam_cpu.options for what
 * happens to most packets with a trace.
 */
#ifndef WAYMARK_IOAM_COUNT_H
#define WAYMARK_IOAM_COUNT_H

#include "element.h"
#include "ioam/cpu.h"

/* Written by the programs, read by the agent; running totals, never cleared. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct ioam_count_key);
	__type(value, struct count_value);
} ioam_counts SEC(".maps");

static __always_inline void ioam_stats_add(__u32 reason, __u64 options)
{
	struct ioam_cpu *cpu = ioam_cpu();
	__u64 index = reason;

	barrier_var(index); /* what is compared is what becomes the index */
	if (cpu && index <= IOAM_REASON_MAX)
		cpu->options[index] += options;
}

static __always_inline void ioam_stat(__u32 reason)
{
	ioam_stats_add(reason, 1);
}

/* Verified alone: called in many places, for few packets. */
__feature(FEATURE_IOAM) __noinline
	int ioam_count(frame_ctx *ctx, __u32 direction, __u32 reason, __u32 space)
{
	struct ioam_count_key key = {
		.iface = iface_of(ctx),
		.direction = direction,
		.reason = reason,
		.space = space,
	};
	struct count_value *value, first = {};

	value = find_or_make(&ioam_counts, &key, &first);
	if (!value) {
		ioam_stat(IOAM_REASON_MAX);
		return 0;
	}
	value->packets += segments_of(ctx);
	value->frames++;
	value->bytes += frame_len(ctx);
	return 0;
}

#endif

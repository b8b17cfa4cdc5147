/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory of one CPU: of the packet that is worked on, and of what is prepared for the next ones.
 *
 * Input: the name of a part. Output: its memory, as scratch.h gives it; NULL, which only the verifier believes. An array
 * and not one per CPU, whose elements begin anywhere in a cache line, and behind a pointer that is in another one.
 */
#ifndef WAYMARK_IOAM_CPU_H
#define WAYMARK_IOAM_CPU_H

#include "scratch.h"

/* Index: the CPU. Written and read by the programs, which do not interrupt each other; totals are read by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* begins with a page */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_cpu);
} ioam_cpus SEC(".maps");

static __always_inline struct ioam_cpu *ioam_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&ioam_cpus, &cpu);
}

#define IOAM_CPU(type, part) PART_OF(ioam_cpu(), type, part)

#endif

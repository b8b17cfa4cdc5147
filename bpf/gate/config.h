/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Constants of the gate, set by internal/gate before the programs are verified, its control block and its tables. */
#ifndef WAYMARK_GATE_CONFIG_H
#define WAYMARK_GATE_CONFIG_H

/* Processors at the start; later ones share the counters behind theirs. */
const volatile __u32 cfg_gate_cpus = 0;

/* Counters of a processor. */
const volatile __u32 cfg_gate_slots = 0;

/* Lines of gate_sources, less one: they are a power of two. */
const volatile __u32 cfg_gate_source_mask = 0;

/* Sets of gate_drops of one CPU in one epoch, a power of two. */
const volatile __u32 cfg_gate_drop_sets = 1;

volatile struct gate_control gate SEC(".data.gate");

/* Written by the agent, for the copy that no program uses; read by the programs. Sized by it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_line);
} gate_lines SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_row);
} gate_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_page);
} gate_pages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_rule);
} gate_rules SEC(".maps");

/*
 * Running totals: cfg_gate_slots for each CPU, which alone writes them. A rule keeps its slot while it is in the
 * rule set, whatever else is replaced. Read by the agent, with what gate_drop_parts has in addition; it clears a slot that no
 * program uses.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct gate_count);
} gate_counts SEC(".maps");

/* Token buckets of rules, by slot: monotonic ns at which the bucket is full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
} gate_buckets SEC(".maps");

/*
 * Token buckets of sources: a fixed number, so that forged sources take no memory. Where a line is full, the
 * bucket that is nearest to full is forgotten: then a source gets its burst again too early.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_sources);
} gate_sources SEC(".maps");

/*
 * By CPU and epoch: current_drops(). Written by the programs; read and cleared by the agent after the epoch has
 * changed. Sized by gate.dropped_flows.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct gate_drop_set);
} gate_drops SEC(".maps");

/* Likewise, one for each CPU and epoch. Where all sums are taken, `counts` has the packets by reason. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct gate_drop_part);
} gate_drop_parts SEC(".maps");

static __always_inline __u32 current_drops(void)
{
	return 2 * bpf_get_smp_processor_id() + current_epoch;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counters of the gate.
 *
 * Input: a slot and a packet. Output: one more in gate_counts, for this CPU.
 */
#ifndef WAYMARK_GATE_COUNT_H
#define WAYMARK_GATE_COUNT_H

static __always_inline void gate_count(__u32 slot, const struct gate_facts *f, bool dropped)
{
	__u32 cpu = bpf_get_smp_processor_id(), n;
	struct gate_count *c;
	__u64 *counters;

	if (f->quiet)
		return;
	if (cpu > cfg_gate_cpus)
		cpu = cfg_gate_cpus;
	n = cpu * cfg_gate_slots + slot;
	c = bpf_map_lookup_elem(&gate_counts, &n);
	if (!c)
		return;
	counters = dropped ? &c->dropped : &c->packets; /* bytes follow */
	if (cpu == cfg_gate_cpus) { /* processors that came after the start count together */
		__sync_fetch_and_add(&counters[0], f->packets);
		__sync_fetch_and_add(&counters[1], f->bytes);
		return;
	}
	counters[0] += f->packets;
	counters[1] += f->bytes;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counters of the gate.
 *
 * Input: a slot and a packet. Output: one more in gate_counts, for this CPU.
 */
#ifndef WAYMARK_GATE_COUNT_H
#define WAYMARK_GATE_COUNT_H

/* Processors that came after the start count together. */
static __always_inline void gate_count_shared(struct gate_count *c, const struct gate_facts *f,
					      bool dropped)
{
	__sync_fetch_and_add(&c->packets, f->packets);
	__sync_fetch_and_add(&c->bytes, f->bytes);
	if (dropped) {
		__sync_fetch_and_add(&c->dropped, f->packets);
		__sync_fetch_and_add(&c->dropped_bytes, f->bytes);
	}
}

static __always_inline void gate_count(__u32 slot, const struct gate_facts *f, bool dropped)
{
	__u32 cpu = bpf_get_smp_processor_id(), n;
	struct gate_count *c;

	if (f->quiet)
		return;
	if (cpu > cfg_gate_cpus)
		cpu = cfg_gate_cpus;
	n = cpu * cfg_gate_slots + slot;
	c = bpf_map_lookup_elem(&gate_counts, &n);
	if (!c)
		return;
	if (cpu == cfg_gate_cpus) {
		gate_count_shared(c, f, dropped);
		return;
	}
	c->packets += f->packets;
	c->bytes += f->bytes;
	if (dropped) {
		c->dropped += f->packets;
		c->dropped_bytes += f->bytes;
	}
}

#endif

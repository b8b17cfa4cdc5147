/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets wait for a few others, and are counted together.
 *
 * In: parsed packets, one by one. Out: the flow table counts them. As a rule the
 * line of memory with a packet's slot is not in the processor's cache. One by
 * one, each packet would wait for its line; of a batch, all lines are prefetched
 * before the first is needed, and arrive together.
 *
 * What waits at the end of an epoch, the agent takes from here. So packets are
 * counted in the order in which they came, and none waits longer than a drain.
 */
#ifndef WAYMARK_FLOW_BATCH_H
#define WAYMARK_FLOW_BATCH_H

/*
 * Index: current_part(). Written by the programs; read and emptied by the agent
 * after it turned the epoch.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct flow_batch);
} batches SEC(".maps");

/*
 * A packet that PDM looks at and that is for no batch: not sampled, or on a
 * processor that has no part of the table. Written and read by the programs, one
 * element.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packet);
} spare_packet SEC(".maps");

/* Never NULL, but for the verifier. */
static __always_inline struct packet *batch_spare(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&spare_packet, &zero);
}

/* Each CPU and epoch has a part of the table. */
static __always_inline __u32 current_part(void)
{
	return 2 * bpf_get_smp_processor_id() + current_epoch;
}

/* NULL on a processor that has no part of the table. */
static __always_inline struct flow_batch *current_batch(void)
{
	__u32 index = current_part();

	return bpf_map_lookup_elem(&batches, &index);
}

/* Where the next packet may be written; it is not in the batch yet. */
static __always_inline struct packet *batch_next(struct flow_batch *batch)
{
	return &batch->packet[batch->waiting & (FLOW_BATCH - 1)];
}

/* One by one: the agent has not added a chunk that one of the packets needs. */
__noinline int batch_count_each(struct flow_batch *batch)
{
	if (!batch)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < FLOW_BATCH; i++)
		flow_account(batch, &batch->packet[i]);
	batch->waiting = 0;
	return 0;
}

/* Asks for a cache line without waiting for it. */
static __always_inline void prefetch(const struct flow_slot *slot)
{
	(void)*(volatile __u32 *)&slot->packets;
}

/*
 * The slots that are looked at first, prefetched; false where a chunk is missing. Few
 * flows are all in one chunk, which is looked up once. Many are not in a cache of the
 * processor, so that one in eight would wait for the slot that is looked at next: it is
 * prefetched, too. Loads that follow each other are under way together, which many
 * instructions between them would prevent.
 */
static __always_inline bool first_slots(const struct flow_batch *batch,
					struct flow_slot *slot[FLOW_BATCH])
{
	const __u32 slots = part_slots(batch), mask = chunk_mask();
	struct flow_slot *next[FLOW_BATCH];
	struct flow_slot *chunk;

	if (batch->sets <= cfg_chunk_sets) {
		chunk = chunk_of(batch, 0);
		if (!chunk)
			return false;
#pragma unroll
		for (int i = 0; i < FLOW_BATCH; i++)
			slot[i] = slot_at(chunk, slot_number(batch->packet[i].hash_high, slots),
					  mask);
#pragma unroll
		for (int i = 0; i < FLOW_BATCH; i++)
			prefetch(slot[i]);
		return true;
	}
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++) {
		__u32 number = slot_number(batch->packet[i].hash_high, slots);

		chunk = chunk_of(batch, number);
		if (!chunk)
			return false;
		slot[i] = slot_at(chunk, number, mask);
		next[i] = slot_at(chunk, number ^ 1, mask);
		/* Computed here, and not between the loads below. */
		asm volatile("" : "+r"(slot[i]), "+r"(next[i]));
	}
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++) {
		prefetch(slot[i]);
		prefetch(next[i]);
	}
	return true;
}

/* The batch is full. Not 0 where its packets must be counted one by one. */
__noinline int batch_count(struct flow_batch *batch)
{
	struct flow_slot *slot[FLOW_BATCH];

	if (!batch)
		return 0;
	if (!first_slots(batch, slot))
		return 1;
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++) {
		if (!flow_hit(slot[i], &batch->packet[i]))
			flow_account(batch, &batch->packet[i]);
	}
	batch->waiting = 0;
	return 0;
}

/* The packet that was written belongs to the batch. */
static __always_inline void batch_keep(struct flow_batch *batch)
{
	if (++batch->waiting >= FLOW_BATCH && batch_count(batch))
		batch_count_each(batch);
}

#endif

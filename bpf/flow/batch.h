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

#include "scratch.h"

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

/* Never NULL, but for the verifier. */
static __always_inline struct packet *batch_spare(void)
{
	return SCRATCH(struct packet, spare_packet);
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
 * 1 where the slot has another flow, as far as the ports show; else 0. Without a branch: no
 * processor can predict which of many flows are in the slot that is looked at first.
 */
static __always_inline __u32 is_other(const struct flow_slot *slot, const struct packet *p)
{
	__u64 differ = ((const __u64 *)slot)[WORD_PORTS] ^ p->word[WORD_PORTS], minus = -differ;

	asm volatile("" : "+r"(minus)); /* else the compiler makes a branch of it */
	return (differ | minus) >> 63;
}

/* Few flows are all in one chunk, which is looked up once. */
static __always_inline bool slots_of_few(const struct flow_batch *batch,
					 struct flow_slot *slot[FLOW_BATCH])
{
	const __u32 slots = part_slots(batch), mask = chunk_mask();
	struct flow_slot *chunk = chunk_of(batch, 0);

	if (!chunk)
		return false;
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++)
		slot[i] = slot_at(chunk, slot_number(batch->packet[i].hash_high, slots), mask);
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++)
		prefetch(slot[i]);
	return true;
}

/*
 * Many are not in the nearest caches. First come the slots that are looked at first, then those
 * that are looked at next, which one packet in eight needs. Loads that follow each other are
 * under way together, which many instructions between them would prevent. Not inlined: what it
 * has on the stack is free again when the flows are counted.
 */
static __noinline int slots_of_many(const struct flow_batch *batch,
				    struct flow_slot *slot[FLOW_BATCH])
{
	const __u32 slots = part_slots(batch), mask = chunk_mask();
	__u32 number[FLOW_BATCH];

#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++) {
		number[i] = slot_number(batch->packet[i].hash_high, slots);
		slot[i] = chunk_of(batch, number[i]);
		if (!slot[i])
			return false;
	}
	asm volatile("" ::: "memory"); /* computed before the loads below, not between them */
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++)
		prefetch(slot_at(slot[i], number[i], mask));
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++) {
		number[i] ^= is_other(slot_at(slot[i], number[i], mask), &batch->packet[i]);
		slot[i] = slot_at(slot[i], number[i], mask);
	}
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++)
		prefetch(slot[i]);
	return true;
}

/* Where the packets' flows are expected, prefetched; false where a chunk is missing. */
static __always_inline bool expected_slots(const struct flow_batch *batch,
					   struct flow_slot *slot[FLOW_BATCH])
{
	return batch->sets <= cfg_chunk_sets ? slots_of_few(batch, slot)
					     : slots_of_many(batch, slot);
}

/* The batch is full. Not 0 where its packets must be counted one by one. */
__noinline int batch_count(struct flow_batch *batch)
{
	struct flow_slot *slot[FLOW_BATCH];

	if (!batch)
		return 0;
	if (!expected_slots(batch, slot))
		return 1;
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++) {
		if (!flow_hit(slot[i], &batch->packet[i]))
			flow_account(batch, &batch->packet[i]);
	}
	batch->waiting = 0;
	return 0;
}

/* Where a packet's flow is expected; NULL: its chunk is missing. */
static __always_inline struct flow_slot *first_slot(const struct flow_batch *batch,
						    const struct packet *p)
{
	__u32 number = slot_number(p->hash_high, part_slots(batch));
	struct flow_slot *chunk = chunk_of(batch, number);

	return chunk ? slot_at(chunk, number, chunk_mask()) : NULL;
}

/* A full batch, with little stack: where slots are is computed twice instead of kept. At XDP, below all stages. */
__noinline int batch_count_twice(struct flow_batch *batch)
{
	struct flow_slot *slot;

	if (!batch)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < FLOW_BATCH; i++) {
		slot = first_slot(batch, &batch->packet[i]);
		if (slot)
			prefetch(slot);
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < FLOW_BATCH; i++) {
		slot = first_slot(batch, &batch->packet[i]);
		if (!slot || !flow_hit(slot, &batch->packet[i]))
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

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets wait for a few others, and are counted together.
 *
 * In: parsed packets, one by one. Out: the flow table counts them. As a rule the
 * line of memory with a packet's slot is not in the processor's cache. One by
 * one, each packet would wait for its line; of a batch, all lines are asked for
 * before the first is needed, and arrive together.
 *
 * What waits at the end of an epoch, the agent takes from here. So packets are
 * counted in the order in which they came, and none waits longer than a drain.
 */
#ifndef WAYMARK_FLOW_BATCH_H
#define WAYMARK_FLOW_BATCH_H

/*
 * Index: part_of_now(). Written by the programs; read and emptied by the agent
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

/* NULL on a processor that has no part of the table. */
static __always_inline struct flow_batch *batch_of_now(void)
{
	__u32 index = part_of_now(filling);

	return bpf_map_lookup_elem(&batches, &index);
}

/* Where the next packet may be written; it is not in the batch yet. */
static __always_inline struct packet *batch_next(struct flow_batch *batch)
{
	return &batch->packet[batch->waiting & (FLOW_BATCH - 1)];
}

/* The batch is full. */
__noinline int batch_count(struct flow_batch *batch)
{
	struct flow_slot *slot[FLOW_BATCH];
	struct sets sets = sets_of_now();
	struct flow_set *near;

	if (!batch)
		return 0;
	near = near_sets(&sets);
	if (!near) /* never, but for the verifier */
		return 0;
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++) {
		slot[i] = first_slot(&sets, near, &batch->packet[i]);
		if (!slot[i])
			return 0;
	}
	/*
	 * Prefetches the cache lines of all slots, without waiting for any. Loads that
	 * follow each other are under way together, however long it took to find them.
	 */
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++)
		(void)*(volatile __u32 *)&slot[i]->packets;
#pragma unroll
	for (int i = 0; i < FLOW_BATCH; i++) {
		if (!flow_hit(slot[i], &batch->packet[i]))
			flow_account(&batch->packet[i]);
	}
	batch->waiting = 0;
	return 0;
}

/* The packet that was written belongs to the batch. */
static __always_inline void batch_keep(struct flow_batch *batch)
{
	if (++batch->waiting >= FLOW_BATCH)
		batch_count(batch);
}

#endif

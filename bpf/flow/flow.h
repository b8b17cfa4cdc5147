/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flow table: a set-associative cache in memory shared with the agent.
 *
 * In: a parsed packet. Out: one slot counts it, or the ring holds what had to
 * leave for it. Called once for each packet of a batch.
 *
 * Each CPU has a partition of its own, so that no slot has two writers,
 * and there are two epochs: programs fill one while the agent reads and clears
 * the other. A flow lives in one of two sets of four slots, as a rule in the one
 * slot that is looked at first; when all eight are taken, the flow seen longest
 * ago leaves through the ring.
 */
#ifndef WAYMARK_FLOW_H
#define WAYMARK_FLOW_H

#include "element.h"

/*
 * The table, in chunks. A chunk is one value: cfg_chunk_sets sets of slots (struct
 * flow_set), and behind them, at the same index, what most packets don't touch
 * (struct flow_extra_set). All are of one size, so that the kernel inlines both
 * lookups. A part of the table, which is what one CPU fills in one epoch, has the
 * chunks from flow_batch.first_chunk on. Written by the programs, read and cleared
 * by the agent after it turned the epoch; the agent adds chunks when there are more
 * flows, and removes them again. Sized by flow.max_entries; never full, see above.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(map_flags, BPF_F_MMAPABLE);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct flow_set) + sizeof(struct flow_extra_set));
		});
} flows SEC(".maps");

/*
 * Flows that left their set, struct flow_evicted. Written by the programs, read
 * by the agent. When full, `unattributed` counts the packets.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} evicted SEC(".maps");

/*
 * Running totals of packets that found the ring full. Written by the programs,
 * read by the agent, never cleared. When full, `counts` has the packets under
 * REASON_UNATTRIBUTED_FULL.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct unattributed_key);
	__type(value, struct unattributed_sum);
} unattributed SEC(".maps");

/* Hands a slot's counts to user space. Not 0 where the ring is full. */
__noinline int evict(struct flow_slot *slot, struct flow_extra *extra)
{
	struct flow_evicted *out;
	__u64 wake = BPF_RB_NO_WAKEUP;

	if (!slot || !extra)
		return 0;
	out = bpf_ringbuf_reserve(&evicted, sizeof(*out), 0);
	if (!out)
		return 1;
	out->slot = *slot;
	out->extra = *extra;
	if (bpf_ringbuf_query(&evicted, BPF_RB_AVAIL_DATA) >= cfg_ring_wakeup)
		wake = BPF_RB_FORCE_WAKEUP;
	bpf_ringbuf_submit(out, wake);
	STAT_ADD(evicted, 1);
	return 0;
}

/* Keeps interface, direction and protocol only. Not 0 where these have no space. */
__noinline int add_unattributed(struct flow_slot *slot, struct flow_extra *extra)
{
	struct unattributed_sum *sum, first = {};
	struct unattributed_key key = {};

	if (!slot || !extra)
		return 0;
	key.iface = slot->iface;
	key.meta = slot->meta;
	key.proto = slot->proto;
	STAT_ADD(unattributed, slot->packets);
	sum = find_or_make(&unattributed, &key, &first);
	if (!sum)
		return 1;
	sum->packets += slot->packets;
	sum->bytes += slot->bytes;
	sum->payload += slot->payload;
	sum->overhead += extra->overhead;
	sum->gso_packets += extra->gso_packets;
	sum->gso_bytes += extra->gso_bytes;
	return 0;
}

/* Only how much it was is kept. */
static __always_inline void count_lost(const struct flow_slot *slot, const struct flow_extra *extra)
{
	count_many(slot->iface, COUNT_WHAT(slot->meta & 1, REASON_UNATTRIBUTED_FULL), slot->packets,
		   slot->packets - extra->gso_packets,
		   slot->bytes + extra->overhead - extra->gso_bytes);
}

/*
 * Where a slot is that of two flows (forward/account.h), it becomes that of the one at the egress, as far as sums
 * need it. 0: it is that of one.
 */
__noinline int turn_slot(struct flow_slot *slot, struct flow_extra *extra)
{
	const __u32 index = (1U << IFACE_NETNS_SHIFT) - 1;
	__u32 meta;

	if (!slot || !extra)
		return 0;
	meta = slot->meta;
	if ((meta >> META_L2_SHIFT & 7) != L2_FORWARDED || !(meta >> META_BOTH_SHIFT & 1))
		return 0;
	slot->iface = (slot->iface & ~index) | (meta >> META_OTHER_SHIFT & index);
	slot->meta = meta | DIRECTION_EGRESS << META_DIRECTION_SHIFT;
	extra->overhead = 0;
	return 1;
}

/* The slot is free afterwards. */
static __always_inline void flow_leave(struct flow_batch *batch, struct flow_slot *slot,
				       struct flow_extra *extra)
{
	batch->evicted++;
	if (!evict(slot, extra))
		return;
	if (add_unattributed(slot, extra))
		count_lost(slot, extra);
	if (turn_slot(slot, extra) && add_unattributed(slot, extra))
		count_lost(slot, extra);
}

/* What a flow of this packet alone has in addition to its slot. */
static __always_inline void first_extra(struct flow_extra *extra, const struct packet *p)
{
	*extra = (struct flow_extra){
		.first = p->id.last,
		.flow_label = p->flow_label,
		.vni = p->vni,
		.overhead = p->overhead,
		.gso_packets = p->gso_packets,
		.gso_bytes = p->gso_bytes,
		.ce_packets = is_congested(p->id.tos) ? p->id.packets : 0,
		.fragments = p->fragment ? p->id.packets : 0,
		.ttl_min = p->id.ttl,
		.ttl_max = p->id.ttl,
		.tcp_flags_high = p->tcp_flags_high,
		.opening = p->opening,
		.rtt_responder = p->rtt_responder,
		.rtt_initiator = p->rtt_initiator,
	};
}

/* All but packets and bytes. */
static __always_inline void flow_add(struct flow_slot *slot, struct flow_extra *extra,
				     const struct packet *p)
{
	slot->payload += p->id.payload;
	slot->last = p->id.last;
	slot->tcp_flags |= p->id.tcp_flags;
	extra->overhead += p->overhead;
	extra->gso_packets += p->gso_packets;
	extra->gso_bytes += p->gso_bytes;
	if (is_congested(p->id.tos))
		extra->ce_packets += p->id.packets;
	if (p->fragment)
		extra->fragments += p->id.packets;
	if (p->id.ttl < extra->ttl_min)
		extra->ttl_min = p->id.ttl;
	if (p->id.ttl > extra->ttl_max)
		extra->ttl_max = p->id.ttl;
	extra->tcp_flags_high |= p->tcp_flags_high;
	extra->opening |= p->opening;
	if (p->rtt_responder && p->id.proto == IPPROTO_TCP)
		extra->rtt_responder = p->rtt_responder;
	if (p->rtt_initiator)
		extra->rtt_initiator = p->rtt_initiator;
	slot->ttl = p->id.ttl;
}

/*
 * Not 0 where the bytes come near the end of their 32 bits: the slot is handed
 * over before. Packets, of 20 bytes and more, stay far below.
 */
static __always_inline __u64 counts_high(__u64 counts)
{
	return counts >> 62;
}

/* Slots of the part of the table that a batch belongs to, in use. */
static __always_inline __u32 part_slots(const struct flow_batch *batch)
{
	return batch->sets * FLOW_WAYS;
}

/* The number of a slot, in its part, that a hash of 32 bits stands for; its set has the others
 * that differ in the last two bits. */
static __always_inline __u32 slot_number(__u32 hash, __u32 slots)
{
	return (__u64)hash * slots >> 32;
}

/* The slots of the chunk with a slot; NULL where the agent has not added it. */
static __always_inline struct flow_slot *chunk_of(const struct flow_batch *batch, __u32 number)
{
	__u32 chunk = batch->first_chunk + (number / FLOW_WAYS >> cfg_chunk_shift), zero = 0;
	void *map = bpf_map_lookup_elem(&flows, &chunk);

	return map ? bpf_map_lookup_elem(map, &zero) : NULL;
}

/* The bits of a slot's number that tell which of its chunk it is. */
static __always_inline __u32 chunk_mask(void)
{
	return cfg_chunk_sets * FLOW_WAYS - 1;
}

static __always_inline struct flow_slot *slot_at(struct flow_slot *chunk, __u32 number, __u32 mask)
{
	return &chunk[number & mask];
}

static __always_inline struct flow_extra *extra_at(struct flow_slot *chunk, __u32 number,
						   __u32 mask)
{
	return &((struct flow_extra *)(chunk + cfg_chunk_sets * FLOW_WAYS))[number & mask];
}

/* Where a flow is, by numbers of slots. */
struct place {
	__u32 slot;
	__u32 other; /* of the second set that it may be in */
};

/*
 * Another flow is where this one would be. Looks for its slot in the rest of
 * its two sets, or for a free one, or for that of the flow seen longest ago. The
 * order of the ways depends on where the search begins: behind the first slot
 * that is free there can be none of this flow.
 */
__noinline int find_elsewhere(const struct flow_batch *batch, struct place *place,
			      const struct flow_slot *id)
{
	__u32 now = bpf_jiffies64(), mask = chunk_mask(), age = 0, first;

	if (!batch || !place || !id)
		return 0;
	first = place->slot;
#pragma clang loop unroll(disable)
	for (int sets = 0; sets < 2; sets++) {
		struct flow_slot *chunk = chunk_of(batch, first);

		if (!chunk)
			return 0;
#pragma clang loop unroll(disable)
		for (int i = 0; i < FLOW_WAYS; i++) {
			struct flow_slot *slot = slot_at(chunk, first ^ i, mask);
			bool found = !slot->packets || same_flow(slot, id);

			if (found || now - slot->last >= age) {
				age = now - slot->last;
				place->slot = first ^ i;
			}
			if (found)
				return 0;
		}
		first = place->other;
	}
	return 0;
}

/* True where the slot has the packet's flow, and there is no more to count. */
static __always_inline bool flow_hit(struct flow_slot *slot, const struct packet *p)
{
	__u64 *words = (__u64 *)slot, counts = words[WORD_COUNTS] + p->word[WORD_COUNTS];
	/* TCP flags may be among those of other packets of the flow. */
	__u64 differ = words[WORD_META] ^ p->word[WORD_META];
	__u64 flags = p->word[WORD_META] & differ;

	if ((words[0] ^ p->word[0]) | (words[1] ^ p->word[1]) | (words[2] ^ p->word[2]) |
	    (words[3] ^ p->word[3]) | (words[4] ^ p->word[4]) | differ << 8 | flags >> 56 |
	    p->rare | counts_high(counts))
		return false;
	words[WORD_COUNTS] = counts;
	/* Both at once: a payload is no more than the bytes, which fit. */
	words[WORD_PAYLOAD] = slot->payload + p->word[WORD_PAYLOAD];
	return true;
}

/*
 * Counts a packet of the batch, whatever it is, and wherever its flow is. Not 0
 * where its chunk is missing.
 */
__noinline int flow_find(struct flow_batch *batch, struct packet *p)
{
	__u32 slots, mask = chunk_mask();
	struct flow_extra *extra;
	struct flow_slot *slot;
	struct flow_slot *chunk;
	struct place place;
	__u64 counts;

	if (!batch || !p)
		return 0;
	slots = part_slots(batch);
	place.slot = slot_number(p->hash_high, slots);
	chunk = chunk_of(batch, place.slot);
	if (!chunk)
		return 1;
	slot = slot_at(chunk, place.slot, mask);
	if (slot->packets && !same_flow(slot, &p->id)) {
		/* Of the flows that are elsewhere, most are here. */
		if (flow_hit(slot_at(chunk, place.slot ^ 1, mask), p))
			return 0;
		place.other = slot_number(p->hash * 0xbf58476d1ce4e5b9ULL >> 32, slots);
		find_elsewhere(batch, &place, &p->id);
		chunk = chunk_of(batch, place.slot);
		if (!chunk) /* unreachable: it was there */
			return 1;
		slot = slot_at(chunk, place.slot, mask);
		if (flow_hit(slot, p))
			return 0;
	}
	extra = extra_at(chunk, place.slot, mask);
	counts = ((__u64 *)slot)[WORD_COUNTS] + p->word[WORD_COUNTS];
	if (slot->packets && same_flow(slot, &p->id) && !counts_high(counts) &&
	    !(extra->gso_bytes >> 31)) { /* in a tunnel they may be more than the bytes */
		((__u64 *)slot)[WORD_COUNTS] = counts;
		flow_add(slot, extra, p);
		return 0;
	}
	if (slot->packets)
		flow_leave(batch, slot, extra);
	*slot = p->id;
	first_extra(extra, p);
	return 0;
}

/* The packet leaves as a flow of its own. */
__noinline int flow_single(struct flow_batch *batch, struct packet *p)
{
	struct flow_extra extra;

	if (!batch || !p)
		return 0;
	first_extra(&extra, p);
	flow_leave(batch, &p->id, &extra);
	return 0;
}

/* Functions side by side, not one in the other: the verifier adds up their stacks. */
static __always_inline void flow_account(struct flow_batch *batch, struct packet *p)
{
	if (flow_find(batch, p))
		flow_single(batch, p);
}

#endif

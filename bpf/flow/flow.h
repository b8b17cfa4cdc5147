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

/*
 * The layers of the table, by number. A layer is one value: for each part of the
 * table cfg_layer_sets sets of slots (struct flow_set), and behind the slots of
 * all parts, at the same index, what most packets don't touch (struct flow_extra_set).
 * Written by the programs, read and cleared by the agent after it turned the epoch.
 * The agent adds layers when there are more flows, and removes them again; `filling`
 * says how many sets are in use. Sized by flow.max_entries; never full, see above.
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

/* One condition instead of seven: as a rule all words are equal. */
static __always_inline bool same_flow(const struct flow_slot *a, const struct flow_slot *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4]) |
		 (x[WORD_META] ^ y[WORD_META]) << (64 - META_TOS_SHIFT));
}

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
	sum = bpf_map_lookup_elem(&unattributed, &key);
	if (!sum) {
		bpf_map_update_elem(&unattributed, &key, &first, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&unattributed, &key);
		if (!sum)
			return 1;
	}
	sum->packets += slot->packets;
	sum->bytes += slot->bytes;
	sum->payload += slot->payload;
	sum->overhead += extra->overhead;
	sum->gso_packets += extra->gso_packets;
	sum->gso_bytes += extra->gso_bytes;
	return 0;
}

/* Only how much it was is kept. */
__noinline int count_lost(struct flow_slot *slot, struct flow_extra *extra)
{
	struct count_value lost = {};

	if (!slot || !extra)
		return 0;
	lost.packets = slot->packets;
	lost.frames = slot->packets - extra->gso_packets;
	lost.bytes = slot->bytes + extra->overhead - extra->gso_bytes;
	return count_many(slot->iface, slot->meta & 1, REASON_UNATTRIBUTED_FULL, &lost);
}

/* The slot is free afterwards. */
static __always_inline void flow_leave(struct flow_slot *slot, struct flow_extra *extra)
{
	if (evict(slot, extra) && add_unattributed(slot, extra))
		count_lost(slot, extra);
}

/* A free slot becomes this packet's flow. */
static __always_inline void flow_create(struct flow_slot *slot, struct flow_extra *extra,
					const struct packet *p)
{
	struct flow_extra fresh = {
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

	*slot = p->id;
	*extra = fresh;
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

/* The sets of this processor and epoch. */
struct sets {
	__u32 part;
	__u32 in_use;
	__u32 in_layer;
	__u32 shift; /* log2(in_layer) */
	__u32 row; /* index of the first one in a layer, see near_sets() */
};

/* Each CPU and epoch has a part of the table. */
static __always_inline __u32 part_of_now(__u64 now)
{
	return 2 * bpf_get_smp_processor_id() + (__u32)now;
}

static __always_inline struct sets sets_of_now(void)
{
	__u64 now = filling;

	return (struct sets){
		.part = part_of_now(now),
		.in_use = now >> 32,
		.in_layer = cfg_layer_sets,
		.shift = cfg_layer_shift,
	};
}

/* The set that a hash of 32 bits stands for. */
static __always_inline __u32 set_of(const struct sets *sets, __u32 hash)
{
	return (__u64)hash * sets->in_use >> 32;
}

static __always_inline struct flow_set *layer_of(__u32 number)
{
	void *layer = bpf_map_lookup_elem(&flows, &number);
	__u32 zero = 0;

	return layer ? bpf_map_lookup_elem(layer, &zero) : NULL;
}

static __always_inline struct flow_extra_set *extras_of(struct flow_set *layer)
{
	return (struct flow_extra_set *)(layer + cfg_parts * cfg_layer_sets);
}

/* The sets of a part in the first layer; NULL on a processor without a part. */
static __always_inline struct flow_set *near_sets(struct sets *sets)
{
	struct flow_set *layer = layer_of(0);

	if (!layer || sets->part >= cfg_parts)
		return NULL;
	sets->row = sets->part * sets->in_layer;
	return layer + sets->row;
}

/* A slot in any layer. Inlined where it is looked up for every packet: a call costs 5 ns. */
static __always_inline struct flow_slot *slot_at(__u32 row, __u32 set, __u32 way, __u32 in_layer,
						 __u32 shift)
{
	struct flow_set *layer = layer_of(set >> shift);
	__u64 index = row + (set & (in_layer - 1));

	/* Linux 6.1 does not learn the bound of `row` from a copy on the stack. */
	barrier_var(index);
	if (!layer || index >= cfg_parts * cfg_layer_sets)
		return NULL;
	return &layer[index].way[way & (FLOW_WAYS - 1)];
}

static __noinline struct flow_slot *far_slot(__u32 row, __u32 set, __u32 way, __u32 in_layer,
					     __u32 shift)
{
	return slot_at(row, set, way, in_layer, shift);
}

/* The slot that is looked at first. */
static __always_inline struct flow_slot *first_slot(const struct sets *sets, struct flow_set *near,
						    const struct packet *p)
{
	__u32 set = set_of(sets, p->hash_high), way = p->hash_low >> 30;

	if (set >= sets->in_layer)
		return slot_at(sets->row, set, way, sets->in_layer, sets->shift);
	return &near[set].way[way];
}

/* A place in the table. */
struct place {
	__u32 part;
	__u32 first; /* set that the search begins with */
	__u32 set; /* the other one; then, the set where the search ended */
	__u32 way;
};

/*
 * Another flow is where this one would be. Looks for its slot in the rest of
 * its two sets, or for a free one, or for that of the flow seen longest ago. The
 * order of the ways depends on where the search begins: behind the first slot
 * that is free there can be none of this flow.
 */
__noinline int find_elsewhere(struct place *place, const struct flow_slot *id)
{
	__u32 now = bpf_jiffies64();
	__u32 set, way, oldest_set, oldest_way, age = 0;
	struct sets sets = sets_of_now();
	struct flow_slot *slot;

	if (!place || !id || place->part >= cfg_parts)
		return 0;
	sets.row = place->part * sets.in_layer;
	set = place->first;
	oldest_set = set;
	oldest_way = place->way;
#pragma clang loop unroll(disable)
	for (int i = 0; i < 2 * FLOW_WAYS; i++) {
		if (i == FLOW_WAYS)
			set = place->set;
		way = (place->way ^ i) & (FLOW_WAYS - 1);
		slot = far_slot(sets.row, set, way, sets.in_layer, sets.shift);
		if (!slot)
			return 0;
		if (!slot->packets || same_flow(slot, id)) {
			place->set = set;
			place->way = way;
			return 0;
		}
		if (now - slot->last >= age) {
			age = now - slot->last;
			oldest_set = set;
			oldest_way = way;
		}
	}
	place->set = oldest_set;
	place->way = oldest_way;
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
	/* Both at once: a payload is no more than the bytes, which have room. */
	words[WORD_PAYLOAD] = slot->payload + p->word[WORD_PAYLOAD];
	return true;
}

/* Counts a packet, whatever it is, and wherever its flow is. */
__noinline int flow_account(const struct packet *p)
{
	struct flow_extra *extra;
	struct flow_slot *slot;
	struct flow_set *near;
	struct sets sets;
	struct flow_set *layer;
	__u32 set, way;
	__u64 counts;

	if (!p)
		return 0;
	sets = sets_of_now();
	near = near_sets(&sets);
	if (!near)
		return 0;
	set = set_of(&sets, p->hash_high);
	way = p->hash_low >> 30;
	slot = first_slot(&sets, near, p);
	if (!slot)
		return 0;
	if (slot->packets && !same_flow(slot, &p->id)) {
		__u32 second = p->hash * 0xbf58476d1ce4e5b9ULL >> 32;
		struct place place = {
			.part = sets.part,
			.first = set,
			.set = set_of(&sets, second),
			.way = way,
		};

		find_elsewhere(&place, &p->id);
		set = place.set;
		way = place.way & (FLOW_WAYS - 1);
		slot = far_slot(sets.row, set, way, sets.in_layer, sets.shift);
		if (!slot)
			return 0;
		if (flow_hit(slot, p))
			return 0;
	}
	layer = layer_of(set >> sets.shift);
	if (!layer)
		return 0;
	extra = &extras_of(layer)[sets.row + (set & (sets.in_layer - 1))].way[way];
	counts = ((__u64 *)slot)[WORD_COUNTS] + p->word[WORD_COUNTS];
	if (slot->packets && same_flow(slot, &p->id) && !counts_high(counts) &&
	    !(extra->gso_bytes >> 31)) { /* in a tunnel they may be more than the bytes */
		((__u64 *)slot)[WORD_COUNTS] = counts;
		flow_add(slot, extra, p);
		return 0;
	}
	if (slot->packets)
		flow_leave(slot, extra);
	flow_create(slot, extra, p);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flow table: a set-associative cache in memory shared with the agent.
 *
 * In: a parsed packet. Out: one slot counts it, or the ring holds what had to
 * leave for it. Called once per packet and hook.
 *
 * Each processor has a partition of its own, so that no slot has two writers,
 * and there are two epochs: programs fill one while the agent reads and clears
 * the other. A flow lives in one of two sets of four slots; when all eight are
 * taken, the flow seen longest ago leaves through the ring.
 */
#ifndef WAYMARK_FLOW_H
#define WAYMARK_FLOW_H

/*
 * Index: (epoch * cfg_cpus + cpu) * cfg_sets + set. Written by the programs,
 * read and cleared by the agent after it turned the epoch. Sized by
 * flow.max_entries; never full, see above.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct flow_set);
} flows SEC(".maps");

/* What most packets don't touch; index, writers and readers as `flows`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct flow_extra_set);
} flow_extras SEC(".maps");

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

/* What one packet adds to flow_extra. */
struct more {
	__u32 overhead;
	__u32 gso_packets;
	__u32 gso_bytes;
};

/* From octets of the frame to counters: GSO stands for several packets. */
static __always_inline struct more measure(struct __sk_buff *skb, struct packet *p, __u32 link_len)
{
	__u32 header = p->l4_offset + p->l4_len, segments = skb->gso_segs;
	struct more m = {};

	if (!segments) {
		segments = 1;
		if (skb->gso_size && skb->len > header)
			segments = (skb->len - header + skb->gso_size - 1) / skb->gso_size;
	}
	m.gso_packets = segments - 1;
	m.gso_bytes = m.gso_packets * header;
	m.overhead = skb->len - link_len - p->id.bytes + m.gso_packets * (p->l3_offset - link_len);
	p->id.packets = segments;
	p->id.payload = p->id.bytes + p->l3_offset - header;
	p->id.bytes += m.gso_packets * (header - p->l3_offset);
	return m;
}

/* Multilinear over the words of the key: independent multiplications. */
static __always_inline __u64 flow_hash(const struct flow_slot *id)
{
	const __u64 *word = (const __u64 *)id;
	__u64 h;

	h = word[0] * cfg_seed[0] + word[1] * cfg_seed[1];
	h += word[2] * cfg_seed[2] + word[3] * cfg_seed[3];
	h += word[4] * cfg_seed[4] + ((__u64)id->meta << 8 | id->proto) * cfg_seed[5];
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	return h;
}

static __always_inline bool same_flow(const struct flow_slot *a, const struct flow_slot *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return x[4] == y[4] && x[2] == y[2] && x[3] == y[3] && x[0] == y[0] && x[1] == y[1] &&
	       a->meta == b->meta && a->proto == b->proto;
}

static __always_inline __u32 now_coarse(void)
{
	return bpf_ktime_get_coarse_ns() >> TIME_SHIFT;
}

/* Not even add_unattributed() had room. */
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

/* The ring is full: only interface, direction and protocol are kept. */
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
			return count_lost(slot, extra);
	}
	sum->packets += slot->packets;
	sum->bytes += slot->bytes;
	sum->payload += slot->payload;
	sum->overhead += extra->overhead;
	sum->gso_packets += extra->gso_packets;
	sum->gso_bytes += extra->gso_bytes;
	return 0;
}

/* Hands a slot's counts to user space; the slot is free afterwards. */
__noinline int evict(struct flow_slot *slot, struct flow_extra *extra)
{
	struct flow_evicted *out;
	__u64 wake = BPF_RB_NO_WAKEUP;

	if (!slot || !extra)
		return 0;
	out = bpf_ringbuf_reserve(&evicted, sizeof(*out), 0);
	if (!out)
		return add_unattributed(slot, extra);
	out->slot = *slot;
	out->extra = *extra;
	if (bpf_ringbuf_query(&evicted, BPF_RB_AVAIL_DATA) >= cfg_ring_wakeup)
		wake = BPF_RB_FORCE_WAKEUP;
	bpf_ringbuf_submit(out, wake);
	STAT_ADD(evicted, 1);
	return 0;
}

/* A free slot becomes this packet's flow. */
static __always_inline void flow_create(struct flow_slot *slot, struct flow_extra *extra,
					const struct packet *p, const struct more *m, __u32 now)
{
	struct flow_extra fresh = {
		.first = now,
		.flow_label = p->flow_label,
		.vni = p->vni,
		.overhead = m->overhead,
		.gso_packets = m->gso_packets,
		.gso_bytes = m->gso_bytes,
		.ce_packets = (p->id.tos & 3) == 3 ? p->id.packets : 0,
		.fragments = p->fragment ? p->id.packets : 0,
		.ttl_min = p->id.ttl,
		.ttl_max = p->id.ttl,
		.tcp_flags_high = p->tcp_flags_high,
		.tos_or = p->id.tos,
	};

	*slot = p->id;
	slot->last = now;
	*extra = fresh;
}

/* What a packet brings that the slot alone can't hold. */
static __always_inline bool has_extra(const struct flow_slot *slot, const struct packet *p,
				      const struct more *m)
{
	return m->overhead || m->gso_packets || p->fragment || p->tcp_flags_high ||
	       slot->ttl != p->id.ttl || slot->tos != p->id.tos || (p->id.tos & 3) == 3;
}

static __always_inline void flow_add_extra(struct flow_slot *slot, struct flow_extra *extra,
					   const struct packet *p, const struct more *m)
{
	extra->overhead += m->overhead;
	extra->gso_packets += m->gso_packets;
	extra->gso_bytes += m->gso_bytes;
	if ((p->id.tos & 3) == 3)
		extra->ce_packets += p->id.packets;
	if (p->fragment)
		extra->fragments += p->id.packets;
	if (p->id.ttl < extra->ttl_min)
		extra->ttl_min = p->id.ttl;
	if (p->id.ttl > extra->ttl_max)
		extra->ttl_max = p->id.ttl;
	extra->tcp_flags_high |= p->tcp_flags_high;
	extra->tos_or |= p->id.tos;
	slot->ttl = p->id.ttl;
}

/* A slot is handed over before its 32-bit counters can overflow. */
static __always_inline bool is_nearly_full(const struct flow_slot *slot)
{
	return slot->bytes >= 1u << 30 || slot->packets >= 1u << 23;
}

/* Counts the packet; returns the slot's TCP flags of before, 0 for a new one.
 */
static __always_inline void flow_account(struct __sk_buff *skb, const struct packet *p,
					 const struct more *m)
{
	__u32 cpu = bpf_get_smp_processor_id(), now = now_coarse();
	struct flow_slot *slot, *oldest = NULL;
	__u32 base, index, oldest_index = 0, way = 0, oldest_way = 0, age = 0;
	struct flow_extra_set *extras;
	struct flow_extra *extra;
	struct flow_set *set;
	__u8 old_flags = 0;
	__u64 hash;

	if (cpu >= cfg_cpus) {
		count(skb, p->id.meta & 1, REASON_CPU_UNKNOWN);
		return;
	}
	base = (epoch * cfg_cpus + cpu) * cfg_sets;
	hash = flow_hash(&p->id);

#pragma clang loop unroll(disable)
	for (int choice = 0; choice < 2; choice++) {
		index = base + ((hash >> 32) * cfg_sets >> 32);
		set = bpf_map_lookup_elem(&flows, &index);
		if (!set)
			return;
#pragma clang loop unroll(full)
		for (way = 0; way < FLOW_WAYS; way++) {
			slot = &set->way[way];
			/* Slots fill in order: behind a free one is none. */
			if (!slot->packets)
				goto create;
			if (same_flow(slot, &p->id))
				goto found;
			if (now - slot->last >= age) {
				age = now - slot->last;
				oldest = slot;
				oldest_index = index;
				oldest_way = way;
			}
		}
		hash <<= 32;
	}
	slot = oldest;
	index = oldest_index;
	way = oldest_way;
	goto replace;

found:
	if (is_nearly_full(slot))
		goto replace;
	old_flags = slot->tcp_flags;
	slot->packets += p->id.packets;
	slot->bytes += p->id.bytes;
	slot->payload += p->id.payload;
	slot->last = now;
	slot->tcp_flags |= p->id.tcp_flags;
	if (p->id.proto != IPPROTO_TCP && !has_extra(slot, p, m))
		return;
	if (p->id.proto == IPPROTO_TCP && !has_extra(slot, p, m) && !is_handshake(p, old_flags))
		return;
	extras = bpf_map_lookup_elem(&flow_extras, &index);
	if (!extras)
		return;
	extra = &extras->way[way & (FLOW_WAYS - 1)];
	flow_add_extra(slot, extra, p, m);
	goto handshake;

replace:
create:
	extras = bpf_map_lookup_elem(&flow_extras, &index);
	if (!extras || !slot)
		return;
	extra = &extras->way[way & (FLOW_WAYS - 1)];
	if (slot->packets)
		evict(slot, extra);
	flow_create(slot, extra, p, m, now);
handshake:
	if (is_handshake(p, old_flags))
		handshake_step(skb, p, extra);
}

#endif

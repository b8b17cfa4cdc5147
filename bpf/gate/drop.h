/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets that rules drop are counted in flows, too.
 *
 * Input: a frame, and the id of the rule that drops it. Output: one flow of gate_drops counts it; or the sum
 * of its interface, rule and protocol; or a reason. Called by decide.h.
 *
 * The flow table of the probe would be lost to a flood of forged sources. Dropped packets therefore have a
 * small one of their own, in which flows are looked up first. New ones come at a limited rate and replace
 * only flows without recent packets; what has no place is in a sum, so that totals stay exact.
 */
#ifndef WAYMARK_GATE_DROP_H
#define WAYMARK_GATE_DROP_H

/* New flows per tick, once those that were saved up are used. */
#define GATE_DROP_FRESH 4

/* A flow that had packets within so many ticks keeps its place. */
#define GATE_DROP_RECENT 64

/* The set of a flow, of those of a CPU and epoch. */
static __always_inline __u32 gate_drop_number(__u32 n, __u64 hash)
{
	return n * cfg_gate_drop_sets + ((__u32)(hash >> 32) & (cfg_gate_drop_sets - 1));
}

static __always_inline void gate_drop_add(struct gate_drop *d, const struct packet *p)
{
	d->packets += p->id.packets;
	d->bytes += p->id.bytes;
	d->payload += p->id.payload;
	d->last = p->id.last;
	d->tcp_flags |= p->id.tcp_flags;
	if (p->id.ttl < d->ttl_min)
		d->ttl_min = p->id.ttl;
	if (p->id.ttl > d->ttl_max)
		d->ttl_max = p->id.ttl;
	if (!p->rare)
		return;
	d->overhead += p->overhead;
	d->gso_packets += p->gso_packets;
	d->gso_bytes += p->gso_bytes;
	d->tcp_flags_high |= p->tcp_flags_high;
	if (is_congested(p->id.tos))
		d->ce_packets += p->id.packets;
	if (p->fragment)
		d->fragments += p->id.packets;
}

/* A flow of this packet alone. */
static __always_inline void gate_drop_begin(struct gate_drop *d, const struct packet *p, __u32 rule)
{
	__u64 *to = (__u64 *)d;

#pragma unroll
	for (int i = 0; i <= WORD_META; i++)
		to[i] = p->word[i];
#pragma unroll
	for (int i = WORD_META + 1; i < sizeof(*d) / sizeof(__u64); i++)
		to[i] = 0;
	d->rule = rule;
	d->first = p->id.last;
	d->flow_label = p->flow_label;
	d->vni = p->vni;
	d->ttl_min = p->id.ttl;
	gate_drop_add(d, p);
}

/*
 * The sum that a packet or flow belongs to; NULL: all are taken. Its key is what unattributed_key has, and
 * the rule.
 */
static __always_inline struct gate_drop *gate_drop_sum(struct gate_drop_part *part, __u32 iface,
						       __u32 meta, __u32 proto, __u32 rule)
{
	__u32 at = iface * 13 + rule + proto;

	meta &= 0xff;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < 4; i++) {
		struct gate_drop *d = &part->sum[(at + i) % GATE_DROP_SUMS];

		if (!d->packets) {
			d->iface = iface;
			d->meta = meta;
			d->proto = proto;
			d->rule = rule;
			d->ttl_min = 0xff;
			return d;
		}
		if (d->iface == iface && d->meta == meta && d->proto == proto && d->rule == rule)
			return d;
	}
	return NULL;
}

/* No flow keeps the packet. Not 0 where no sum does, either. */
static __always_inline int gate_drop_to_sum(struct gate_drop_part *part, __u32 rule)
{
	const struct packet *p = &part->packet;
	struct gate_drop *d = gate_drop_sum(part, p->id.iface, p->id.meta, p->id.proto, rule);

	if (!d)
		return -1;
	if (!d->packets)
		d->first = p->id.last;
	gate_drop_add(d, p);
	return 0;
}

/* A flow leaves its place. Not 0 where no sum takes what it counted: it stays. */
static __always_inline int gate_drop_leave(struct gate_drop_part *part,
					   const struct gate_drop *from)
{
	struct gate_drop *d = gate_drop_sum(part, from->iface, from->meta, from->proto, from->rule);

	if (!d)
		return -1;
	if (!d->packets || (__s32)(from->first - d->first) < 0)
		d->first = from->first;
	d->last = from->last;
	d->packets += from->packets;
	d->bytes += from->bytes;
	d->payload += from->payload;
	d->overhead += from->overhead;
	d->gso_packets += from->gso_packets;
	d->gso_bytes += from->gso_bytes;
	d->ce_packets += from->ce_packets;
	d->fragments += from->fragments;
	return 0;
}

/* Whether another flow may be kept now. */
static __always_inline bool gate_drop_may_begin(struct gate_drop_part *part)
{
	__u32 now = bpf_jiffies64(), passed = now - part->tick, most = cfg_gate_drop_sets;

	if (passed) {
		part->tick = now;
		part->tokens = passed < most ? part->tokens + passed * GATE_DROP_FRESH : most;
		if (part->tokens > most)
			part->tokens = most;
	}
	if (!part->tokens)
		return false;
	part->tokens--;
	return true;
}

/* A packet whose flow is not in the set. Not 0 where it is counted nowhere. Verified alone. */
__feature(FEATURE_GATE) __noinline
	int gate_drop_fresh(struct gate_drop_part *part, struct gate_drop_set *set, __u32 rule)
{
	struct gate_drop *oldest;
	__u32 number = 0;

	if (!part || !set)
		return -1;
	gate_again_forget(part);
	if (!gate_drop_may_begin(part))
		return gate_drop_to_sum(part, rule);
	oldest = &set->way[0];
	for (int i = 0; i < GATE_DROP_WAYS; i++) {
		struct gate_drop *d = &set->way[i];

		if (d->packets && (__s32)(d->last - oldest->last) >= 0)
			continue;
		oldest = d;
		number = i;
		if (!d->packets)
			break;
	}
	if (oldest->packets && ((__u32)bpf_jiffies64() - oldest->last < GATE_DROP_RECENT ||
				gate_drop_leave(part, oldest)))
		return gate_drop_to_sum(part, rule);
	gate_drop_begin(oldest, &part->packet, rule);
	set->verdict[number % GATE_DROP_WAYS].slot = 0;
	return 0;
}

/* Counts a packet whose flow is in the set. Output: its place there; less than 0: it is not. */
static __always_inline int gate_drop_hit(struct gate_drop_set *set, const struct packet *p,
					 __u32 rule)
{
#pragma unroll
	for (int i = 0; i < GATE_DROP_WAYS; i++) {
		struct gate_drop *d = &set->way[i];

		if (d->rule == rule && same_flow((const struct flow_slot *)d, &p->id) &&
		    d->packets) {
			gate_drop_add(d, p);
			return i;
		}
	}
	return -1;
}

/* Of a packet that parse_fast() has read what rules may ask besides its flow and its length: DSCP, and flags of TCP. */
static __always_inline __u64 gate_drop_asked(const struct packet *p)
{
	return p->word[WORD_META] >> 40 & ~0xff00ULL; /* without the TTL */
}

/* The place of a flow that has packets, by the rule that drops them all. Less than 0: there is none. */
static __always_inline int gate_drop_verdict(const struct gate_drop_set *set,
					     const struct packet *p, __u64 state)
{
	__u64 want = state | (__u64)p->id.bytes << 32, asked = gate_drop_asked(p);

#pragma unroll
	for (int i = 0; i < GATE_DROP_WAYS; i++) {
		const __u64 *v = (const __u64 *)&set->verdict[i];

		if (v[0] << 16 == want << 16 && v[1] == asked && set->verdict[i].slot &&
		    same_flow((const struct flow_slot *)&set->way[i], &p->id))
			return i;
	}
	return -1;
}

/*
 * A packet whose flow is there, as most are that there are many of. decided: by a rule, which has counted it. false: nothing is
 * counted.
 */
static __always_inline bool gate_drop_count(frame_ctx *ctx, const struct gate_place *place,
					    const struct packet *p, bool decided, __u32 rule,
					    __u32 slot)
{
	__u32 number = gate_drop_number(place->n, hash_words(p->word)), n;
	struct gate_drop_set *set = bpf_map_lookup_elem(&gate_drops, &number);
	struct gate_count *c;
	__u64 state;
	__u64 *v, one;
	int way;

	if (!set)
		return false;
	if (decided) {
		way = gate_drop_hit(set, p, rule);
		if (way < 0)
			return false;
		state = WHOLE(place->part->again.came);
		/* Rules about protocols and ports take less time than this: see gate/quick.h. */
		if (slot && !(state >> 32) && place->part->memo.state != state) {
			v = (__u64 *)&set->verdict[way];
			one = state | (__u64)p->id.bytes << 32 | (__u64)slot << 48;
			place->part->known = v[0] == one && v[1] == gate_drop_asked(p);
			v[0] = one;
			v[1] = gate_drop_asked(p);
		}
	} else {
		way = gate_drop_verdict(set, p, place->part->again.came);
		if (way < 0)
			return false;
		slot = set->verdict[way].slot;
		n = bpf_get_smp_processor_id() * cfg_gate_slots + slot;
		c = bpf_map_lookup_elem(&gate_counts, &n);
		if (!c)
			return false;
		c->dropped++;
		c->dropped_bytes += p->id.bytes;
		gate_drop_add(&set->way[way], p);
	}
	if (slot)
		gate_again_expect(ctx, place->part, p, number * GATE_DROP_WAYS + way, slot);
	return true;
}

/*
 * Likewise, of a packet as parse_fast() reads them. It stays in registers: read as it has just been written, in parts, it would be
 * waited for. Each version of IP by itself, as long as registers last: of IPv4, a third of what is compared is constant.
 */
static __always_inline bool gate_drop_fast(frame_ctx *ctx, const struct gate_place *place,
					   bool decided, __u32 rule, __u32 slot)
{
	struct frame f;
	struct packet p;
	__be16 proto;
	void *ip;

	if (cfg_features & (FEATURE_SAMPLING | FEATURE_NO_LINK) || !place->part)
		return false;
	p.id.last = bpf_jiffies64();
	f = frame_of(ctx);
	ip = f.data + sizeof(struct ethhdr);
	if (f.data + FAST_IPV4 > f.end)
		return false;
	proto = *(__be16 *)(f.data + offsetof(struct ethhdr, h_proto));
	if (proto == bpf_htons(ETH_P_IP))
		return fast_ipv4(ctx, DIRECTION_INGRESS, cfg_features, &p, ip, f.end) &&
		       gate_drop_count(ctx, place, &p, decided, rule, slot);
	if (proto == bpf_htons(ETH_P_IPV6) && f.data + FAST_IPV6 <= f.end)
		return fast_ipv6(ctx, DIRECTION_INGRESS, cfg_features, &p, ip, f.end) &&
		       gate_drop_count(ctx, place, &p, decided, rule, slot);
	return false;
}

/* Counts a packet that a rule drops. */
static __always_inline bool gate_drop_known(frame_ctx *ctx, const struct gate_place *place,
					    __u32 rule, __u32 slot)
{
	return gate_drop_fast(ctx, place, true, rule, slot);
}

/* Not 0 where no flow and no sum counts the packet. */
static __always_inline int gate_drop_in_flow(frame_ctx *ctx, __u32 rule)
{
	__u32 n = current_drops(), number;
	struct gate_drop_part *part = bpf_map_lookup_elem(&gate_drop_parts, &n);
	struct gate_drop_set *set;
	struct packet *p;

	if (!part)
		return -1;
	p = &part->packet;
	if (!parse_fast(ctx, DIRECTION_INGRESS, cfg_features, p) &&
	    parse(ctx, DIRECTION_INGRESS, p) != PARSE_OK)
		return -1;
	number = gate_drop_number(n, hash_flow(&p->id));
	set = bpf_map_lookup_elem(&gate_drops, &number);
	if (!set)
		return -1;
	return gate_drop_hit(set, p, rule) < 0 ? gate_drop_fresh(part, set, rule) : 0;
}

/* A packet that a rule drops: what an interface received stays the sum of what is counted. Verified alone. */
__feature(FEATURE_GATE) __noinline int gate_drop(frame_ctx *ctx, __u32 rule)
{
	if (!is_sampled(cfg_features))
		count(ctx, DIRECTION_INGRESS, REASON_SAMPLED_OUT);
	else if (gate_drop_in_flow(ctx, rule))
		count(ctx, DIRECTION_INGRESS, REASON_DROPPED_BY_RULE);
	return 0;
}

#endif

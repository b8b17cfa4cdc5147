/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets like the one that a rule has just dropped: in a flood from one source, most are. What rules ask, and what a flow
 * counts, is the same, so that neither is looked up again. Until another packet comes, they are counted here only: the agent
 * adds them to the counters of the rule whenever it reads these.
 *
 * Input: a frame. Output: whether it is dropped, and counted. Called by xdp.bpf.c and, to remember a packet and to account
 * for those like it, by drop.h.
 */
#ifndef WAYMARK_GATE_AGAIN_H
#define WAYMARK_GATE_AGAIN_H

/*
 * What the verdict about a packet depends on, in addition to the packet: the agent changes it with rules, interfaces, bans and
 * captures. Read before the verdict: what changes meanwhile is not remembered as if it had been there.
 */
static __always_inline __u64 gate_state(void)
{
	return *(const volatile __u64 *)&gate.copy;
}

_Static_assert(offsetof(struct gate_control, copy) == 0 &&
		       offsetof(struct gate_control, capture) == sizeof(__u32),
	       "both are read as one word");

/* A word of a frame as it is in memory; each leaves out what differs between packets of a flow. */
#define GATE_WORD(at, offset, type) (*(const type *)((at) + (offset)))

/* EtherType, and the IP header up to its length: of IPv4 without the identification behind it, of IPv6 without the flow label. */
#define GATE_AGAIN_IPV4(head) ((head) << 16)
#define GATE_AGAIN_IPV6(head) ((head) & ~0x0000ffff0f000000ULL)

/* Nothing is like it: nobody captures so much. */
#define GATE_AGAIN_NOTHING (~0ULL)

/* A field is that of the packet that is remembered, or becomes it. */
#define GATE_AGAIN(field, value)              \
	do {                                  \
		if (remember)                 \
			a->field = (value);   \
		else if (a->field != (value)) \
			return false;         \
	} while (0)

/* The transport header: ports, and of TCP the length of the header, and flags. */
static __always_inline bool gate_again_transport(struct gate_again *a, const void *l4, __u8 proto,
						 bool remember)
{
	__be16 tcp = GATE_WORD(l4, 12, __be16);

	GATE_AGAIN(ports, GATE_WORD(l4, 0, __be32));
	if (remember)
		a->tcp = proto == IPPROTO_TCP ? tcp : 0;
	return remember || !a->tcp || a->tcp == tcp;
}

static __always_inline bool gate_again_ipv4(struct gate_again *a, const void *ip, bool remember)
{
	GATE_AGAIN(addresses, GATE_WORD(ip, offsetof(struct iphdr, saddr), __u64));
	GATE_AGAIN(upper, GATE_WORD(ip, offsetof(struct iphdr, frag_off), __u32));
	return gate_again_transport(a, ip + sizeof(struct iphdr),
				    ((const struct iphdr *)ip)->protocol, remember);
}

static __always_inline bool gate_again_ipv6(struct gate_again *a, const void *ip, bool remember)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		GATE_AGAIN(more[i], GATE_WORD(ip, offsetof(struct ipv6hdr, saddr) + 8 * i, __u64));
	GATE_AGAIN(upper, GATE_WORD(ip, offsetof(struct ipv6hdr, nexthdr), __u16));
	return gate_again_transport(a, ip + sizeof(struct ipv6hdr),
				    ((const struct ipv6hdr *)ip)->nexthdr, remember);
}
#undef GATE_AGAIN

/* Bytes of the frame that have to be there. */
#define GATE_AGAIN_LEAST (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct tcphdr))
#define GATE_AGAIN_LEAST_IPV6 \
	(sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + sizeof(struct tcphdr))

/* Whether a frame is like the one that is remembered. */
static __always_inline bool gate_again_is(struct gate_again *a, frame_ctx *ctx)
{
	struct frame f = frame_of(ctx);
	const void *ip = f.data + sizeof(struct ethhdr);
	__u64 head;

	if (f.data + GATE_AGAIN_LEAST > f.end || a->frame != (__u32)(f.end - f.data))
		return false;
	head = GATE_WORD(f.data, offsetof(struct ethhdr, h_proto), __u64);
	if (a->head == GATE_AGAIN_IPV4(head)) {
		if (!gate_again_ipv4(a, ip, false))
			return false;
	} else {
		if (a->head != GATE_AGAIN_IPV6(head) || (__be16)head != bpf_htons(ETH_P_IPV6) ||
		    f.data + GATE_AGAIN_LEAST_IPV6 > f.end || !gate_again_ipv6(a, ip, false))
			return false;
	}
	return a->iface == iface_of(ctx) && frame_is_linear(ctx);
}

/* Remembers the headers of a frame whose headers parse_fast() has read. false: they cannot be. */
static __always_inline bool gate_again_learn(struct gate_again *a, frame_ctx *ctx)
{
	struct frame f = frame_of(ctx);
	const void *ip = f.data + sizeof(struct ethhdr);
	__u64 head;

	if (f.data + GATE_AGAIN_LEAST > f.end)
		return false;
	head = GATE_WORD(f.data, offsetof(struct ethhdr, h_proto), __u64);
	if ((__be16)head == bpf_htons(ETH_P_IP)) {
		a->head = GATE_AGAIN_IPV4(head);
		return gate_again_ipv4(a, ip, true);
	}
	if (f.data + GATE_AGAIN_LEAST_IPV6 > f.end)
		return false;
	a->head = GATE_AGAIN_IPV6(head);
	return gate_again_ipv6(a, ip, true);
}

/* Where packets are counted that rules drop, from the first look at a packet on. */
struct gate_place {
	struct gate_drop_part *part; /* NULL: the CPU came after the start */
	__u32 n; /* current_drops() */
};

/* Drops a packet that is like the last one. */
static __always_inline bool gate_again(frame_ctx *ctx, struct gate_place *place)
{
	__u64 state;
	struct gate_again *a;

	place->n = current_drops();
	place->part = bpf_map_lookup_elem(&gate_drop_parts, &place->n);
	state = gate_state();
	if (!place->part)
		return false;
	a = &place->part->again;
	if (a->state == state && gate_again_is(a, ctx)) {
		a->packets++;
		a->last = bpf_jiffies64();
		return true;
	}
	a->came = state;
	return false;
}

/* What an odd number is before changes, and an even one behind them: the agent reads again what it has read between. */
static __always_inline void gate_again_turn(struct gate_again *a)
{
	publish_word(&a->turns, a->turns + 1);
}

/* The flow counts the packets that were like its last one. */
static __always_inline void gate_again_in_flow(const struct gate_again *a, __u64 packets)
{
	struct gate_drop_set *set;
	struct gate_drop *d;
	__u32 n = a->flow / GATE_DROP_WAYS;

	set = bpf_map_lookup_elem(&gate_drops, &n);
	if (!packets || !set)
		return;
	d = &set->way[a->flow % GATE_DROP_WAYS];
	d->packets += packets;
	d->bytes += packets * a->bytes;
	d->payload += packets * a->payload;
	d->overhead += packets * a->overhead;
	if ((__s32)(a->last - d->last) > 0)
		d->last = a->last;
}

/* Rule and flow count the packets that were like the last one. Verified alone: it comes after many, and takes stack. */
__feature(FEATURE_GATE) __noinline int gate_again_add(struct gate_drop_part *part)
{
	struct gate_again *a;
	struct gate_count *c;
	__u32 n;

	if (!part)
		return 0;
	a = &part->again;
	gate_again_in_flow(a, a->packets - a->settled);
	n = a->count;
	c = bpf_map_lookup_elem(&gate_counts, &n);
	if (!c)
		return 0;
	gate_again_turn(a);
	c->dropped += a->packets;
	c->dropped_bytes += a->packets * a->bytes;
	a->packets = a->settled = 0;
	gate_again_turn(a);
	return 0;
}

/* The flow leaves its place, or the packet is another one: nothing is like it. */
static __always_inline void gate_again_forget(struct gate_drop_part *part)
{
	if (part->again.packets)
		gate_again_add(part);
	part->again.state = GATE_AGAIN_NOTHING;
}

/* Whether the flow counts of a packet what those like it would not show, or its transport header is behind others. */
static __always_inline bool gate_again_is_rare(const struct packet *p)
{
	return is_congested(p->id.tos) || p->tcp_flags_high ||
	       p->l4_offset > sizeof(struct ethhdr) + sizeof(struct ipv6hdr);
}

/*
 * A flow has counted a packet. If it is like the one before, as far as that costs nothing to see, the next ones may be, too:
 * with many flows in turns, nothing is remembered in vain. slot: of the counters of the only rule that has counted it.
 */
static __always_inline void gate_again_expect(frame_ctx *ctx, struct gate_drop_part *part,
					      const struct packet *p, __u32 flow, __u32 slot)
{
	struct gate_again *a = &part->again;
	bool again = a->flow == flow && a->bytes == p->id.bytes;

	gate_again_forget(part);
	a->flow = flow;
	a->bytes = p->id.bytes;
	if (!again || a->came >> 32 || gate_again_is_rare(p))
		return;
	gate_again_turn(a);
	a->iface = iface_of(ctx); /* not kept for so long: stack is scarce here */
	a->count = bpf_get_smp_processor_id() * cfg_gate_slots + slot;
	a->payload = p->id.payload;
	a->overhead = p->overhead;
	a->frame = sizeof(struct ethhdr) + p->id.bytes + p->overhead;
	if (gate_again_learn(a, ctx))
		a->state = a->came;
	gate_again_turn(a);
}

#endif

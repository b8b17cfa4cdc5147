/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets like the one that a rule has just dropped: in a flood from one source, most are. What rules ask, and what a flow
 * counts, is the same, so that neither is looked up again: it takes a quarter of the time.
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

/* What differs between packets of a flow: identification and checksum of IPv4, and the flow label. In the order of memory. */
#define GATE_AGAIN_IPV4_ID (0xffffULL << 32)
#define GATE_AGAIN_IPV4_SUM (0xffffULL << 16)
#define GATE_AGAIN_LABEL 0xffff0f00ULL

/* Length of the header and flags. */
static __always_inline __u64 gate_again_tcp(const void *tcp)
{
	return *(const __u16 *)(tcp + 12);
}

/* Compares the headers with those that are remembered, or remembers them. Output: 0 where they are the same. */
static __always_inline __u64 gate_again_headers(struct gate_again *a, frame_ctx *ctx, bool remember)
{
	struct frame f = frame_of(ctx);
	const __u64 *ip = f.data + sizeof(struct ethhdr);
	const void *tcp4 = (const void *)ip + sizeof(struct iphdr),
		   *tcp6 = (const void *)ip + sizeof(struct ipv6hdr);
	__u64 differ = 0;
	__be16 proto;

#define GATE_AGAIN(n, value)                            \
	do {                                            \
		if (remember)                           \
			a->word[n] = (value);           \
		else                                    \
			differ |= a->word[n] ^ (value); \
	} while (0)
	if (tcp4 + sizeof(struct tcphdr) > f.end)
		return 1;
	/* Of IPv4 the ports, and of IPv6 the host: most packets that are others end here. */
	if (!remember && a->word[2] != ip[2])
		return 1;
	proto = *(const __be16 *)(f.data + offsetof(struct ethhdr, h_proto));
	GATE_AGAIN(5, proto);
	if (proto == bpf_htons(ETH_P_IP)) {
		GATE_AGAIN(0, ip[0] & ~GATE_AGAIN_IPV4_ID);
		GATE_AGAIN(1, ip[1] & ~GATE_AGAIN_IPV4_SUM);
		GATE_AGAIN(2, ip[2]);
		if (((const struct iphdr *)ip)->protocol == IPPROTO_TCP)
			GATE_AGAIN(3, gate_again_tcp(tcp4));
		return differ;
	}
	if (tcp6 + sizeof(struct tcphdr) > f.end)
		return 1;
	GATE_AGAIN(0, ip[0] & ~GATE_AGAIN_LABEL);
	GATE_AGAIN(1, ip[1]);
	GATE_AGAIN(2, ip[2]);
	GATE_AGAIN(3, ip[3]);
	GATE_AGAIN(4, ip[4]);
	GATE_AGAIN(6, *(const __u32 *)tcp6);
	if (((const struct ipv6hdr *)ip)->nexthdr == IPPROTO_TCP)
		GATE_AGAIN(7, gate_again_tcp(tcp6));
#undef GATE_AGAIN
	return differ;
}

/* Counts a packet that is like the last one, and drops it. */
static __always_inline bool gate_again(frame_ctx *ctx)
{
	__u32 n = current_drops();
	struct gate_drop_part *part = bpf_map_lookup_elem(&gate_drop_parts, &n);
	__u64 state = gate_state();
	struct gate_again *a;
	struct gate_count *c;

	if (cfg_features & FEATURE_SAMPLING || !part)
		return false;
	a = &part->again;
	part->state = state;
	if (a->state != state || gate_again_headers(a, ctx, false) || a->iface != iface_of(ctx) ||
	    a->frame != frame_len(ctx))
		return false;
	n = a->count;
	c = bpf_map_lookup_elem(&gate_counts, &n);
	if (!c)
		return false;
	c->dropped++;
	c->dropped_bytes += a->bytes;
	a->packets++;
	a->last = bpf_jiffies64();
	return true;
}

/* The flow counts the packets that were like its last one. Verified alone: it comes after many, and takes stack. */
__feature(FEATURE_GATE) __noinline int gate_again_add(struct gate_drop_part *part)
{
	struct gate_drop_set *set;
	struct gate_again *a;
	struct gate_drop *d;
	__u32 n;

	if (!part)
		return 0;
	a = &part->again;
	n = a->flow / GATE_DROP_WAYS;
	set = bpf_map_lookup_elem(&gate_drops, &n);
	if (!set)
		return 0;
	d = &set->way[a->flow % GATE_DROP_WAYS];
	d->packets += a->packets;
	d->bytes += a->packets * a->bytes;
	d->payload += a->packets * a->payload;
	d->overhead += a->packets * a->overhead;
	if ((__s32)(a->last - d->last) > 0)
		d->last = a->last;
	a->packets = 0;
	return 0;
}

/* The flow leaves its place, or the packet is another one: nothing is like it. */
static __always_inline void gate_again_forget(struct gate_drop_part *part)
{
	if (part->again.packets)
		gate_again_add(part);
	part->again.frame = 0;
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
	if (!again || part->state >> 32 || gate_again_is_rare(p) ||
	    gate_again_headers(a, ctx, true))
		return;
	a->state = part->state;
	a->iface = p->id.iface;
	a->count = bpf_get_smp_processor_id() * cfg_gate_slots + slot;
	a->payload = p->id.payload;
	a->overhead = p->overhead;
	a->frame = sizeof(struct ethhdr) + p->id.bytes + p->overhead;
}

#endif

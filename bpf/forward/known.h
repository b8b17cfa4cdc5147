/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the kernel's tables have said a short time ago, by CPU. To ask takes some hundred instructions of the kernel, and most of
 * what is asked was asked before.
 *
 * Input: a packet; what the kernel said. Output: the same for each packet that the kernel would be asked the same of, until
 * routes or neighbours change, or time is up: for IPv4 forward_memory.lasts ticks of the kernel's timer, for IPv6 one. Without an
 * agent nobody counts changes of neighbours, and they are met then. Only what lets packets be forwarded from port to port is
 * remembered: all else is asked for again, as is what VLAN interfaces, bridges and VRFs have a part in. Called by forward.h.
 */
#ifndef WAYMARK_FORWARD_KNOWN_H
#define WAYMARK_FORWARD_KNOWN_H

/* By CPU; set in size before loading. Written and read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct forward_known);
} forward_known SEC(".maps");

/* NULL on a processor that was not there at the start. */
static __always_inline struct forward_known *forward_known_here(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&forward_known, &cpu);
}

/*
 * A number that is another one once the kernel's routes, rules, addresses, links or neighbours have changed: the kernel counts
 * what makes its own sockets ask again, and neighbour.bpf.c counts neighbours. Of IPv6 it counts when it begins to put a route in place of another, so that what is asked right
 * then may still be used until the tick ends.
 */
static __always_inline __u16 forward_generation(frame_ctx *xdp, bool ipv6)
{
	const struct xdp_buff *buff;
	const struct net *net;

	if (!cfg_forward_changes || !bpf_cast_to_kern_ctx)
		return 0;
	buff = bpf_cast_to_kern_ctx(xdp);
	net = buff->rxq->dev->nd_net.net;
	return forward_memory.neighbours +
	       (ipv6 ? net->ipv6.fib6_sernum + net->ipv6.rt6_stats->fib_discarded_routes
		     : net->ipv4.rt_genid);
}

/* Where the way of a hashed packet is. */
static __always_inline struct forward_known_way *forward_known_way_of(struct forward_known *known,
								      const struct packet *p)
{
	return &known->way[p->hash_high & (FORWARD_KNOWN_WAYS - 1)];
}

/* Type of service and flow label, which rules and multipath routes may choose by. */
static __always_inline __u32 forward_kind(const struct packet *p)
{
	return p->flow_label | (__u32)p->id.tos << 20;
}

/* What else an answer depends on: that, and whether sources were checked by rp_filter. */
static __always_inline __u32 forward_asked(const struct packet *p, __u32 flags)
{
	return forward_kind(p) | (flags & FORWARD_STRICT) << 24;
}

/* For how many ticks an answer lasts. */
static __always_inline __u32 forward_lasts(const struct packet *p)
{
	return p->id.meta >> META_IPV6_SHIFT & 1 ?: forward_memory.lasts;
}

/* Whether the kernel was asked about such a packet lately, in this generation. A longer one is asked for again. */
static __always_inline bool forward_is_known(const struct forward_known_way *w,
					     const struct packet *p, __u32 flags, __u16 generation)
{
	const __u64 *word = (const void *)w;

	return !((word[0] ^ p->word[0]) | (word[1] ^ p->word[1]) | (word[2] ^ p->word[2]) |
		 (word[3] ^ p->word[3]) | (word[4] ^ p->word[4]) |
		 (w->kind ^ forward_asked(p, flags)) | (w->proto ^ p->id.proto) |
		 (w->generation ^ generation)) &&
	       p->id.last - w->tick < forward_lasts(p) && p->id.bytes <= w->mtu;
}

/* Where a source is: a word has all that its answer depends on. */
static __always_inline __u64 *forward_source_of(struct forward_known *known, const struct packet *p)
{
	__u32 n = (p->word[WORD_SADDR + 1] >> 32) * 0x9e3779b1U >> (32 - FORWARD_SOURCE_BITS);

	return known->source[n & ((1 << FORWARD_SOURCE_BITS) - 1)].word;
}

#endif

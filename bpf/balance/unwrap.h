/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * At a backend: takes off the outer header that a balancer has put in front of a packet, so that no tunnel device is
 * needed.
 *
 * Input: a frame at an interface that decapsulates. Output: the packet inside, for the kernel, and BALANCE_UNWRAPPED; or
 * the frame as it came. Called by balance.h.
 */
#ifndef WAYMARK_BALANCE_UNWRAP_H
#define WAYMARK_BALANCE_UNWRAP_H

/* What is known of an outer header, in the working memory of a CPU. */
struct balance_outer {
	struct balance_source from;
	__u32 bytes; /* in front of the packet inside */
	__u8 proto; /* of what is inside, in the end */
	struct ethhdr link;
};

static __always_inline bool balance_is_inner(__u8 proto)
{
	return proto == IPPROTO_IPIP || proto == IPPROTO_IPV6;
}

/* The protocol behind an IP header, or behind GUE. 0: another one. */
static __always_inline void balance_unwrap_gue(const struct frame *f, struct balance_outer *o)
{
	const struct udphdr *udp = f->data + sizeof(struct ethhdr) + o->bytes;
	const struct gue_header *gue = (const void *)(udp + 1);

	if (o->proto != IPPROTO_UDP)
		return;
	o->proto = 0;
	if ((const void *)(gue + 1) > f->end || udp->dest != bpf_htons(BALANCE_GUE_PORT) ||
	    gue->form || gue->flags)
		return;
	o->proto = gue->proto;
	o->bytes += BALANCE_GUE_BYTES;
}

static __always_inline enum balance_result balance_unwrap_read(frame_ctx *xdp,
							       struct balance_outer *o)
{
	struct frame f = frame_of(xdp);
	const struct ethhdr *eth = f.data;
	const struct ipv6hdr *ip6 = (const void *)(eth + 1);
	const struct iphdr *ip = (const void *)(eth + 1);

	if ((const void *)(ip + 1) > f.end)
		return BALANCE_NOT_IP;
	o->from.bits = 128;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		*(__be32 *)(o->from.addr + 8) = bpf_htonl(0xffff);
		*(__be32 *)(o->from.addr + 12) = ip->saddr;
		o->bytes = sizeof(*ip);
		o->proto = ip->protocol;
		if (ip->ihl != 5)
			return BALANCE_NO_SERVICE;
		if (ip->frag_off & bpf_htons(0x3fff))
			return balance_is_inner(o->proto) ? BALANCE_UNWRAP_FRAGMENT
							  : BALANCE_NO_SERVICE;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6) && (const void *)(ip6 + 1) <= f.end) {
		__builtin_memcpy(o->from.addr, &ip6->saddr, sizeof(o->from.addr));
		o->bytes = sizeof(*ip6);
		o->proto = ip6->nexthdr;
	} else {
		return BALANCE_NOT_IP;
	}
	balance_unwrap_gue(&f, o);
	return balance_is_inner(o->proto) ? BALANCE_DONE : BALANCE_NO_SERVICE;
}

static __always_inline enum balance_result balance_unwrap(frame_ctx *xdp)
{
	struct balance_outer *o = SCRATCH(struct balance_outer, balance_outer);
	enum balance_result result;
	struct ethhdr *eth;
	struct frame f;

	if (!o)
		return BALANCE_NO_SERVICE;
	__builtin_memset(o, 0, sizeof(*o));
	result = balance_unwrap_read(xdp, o);
	if (result != BALANCE_DONE)
		return result;
	if (!bpf_map_lookup_elem(&balance_sources, &o->from))
		return BALANCE_STRANGER;
	f = frame_of(xdp);
	eth = f.data;
	if ((void *)(eth + 1) > f.end)
		return BALANCE_UNWRITABLE;
	o->link = *eth;
	o->link.h_proto = o->proto == IPPROTO_IPV6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	if (bpf_xdp_adjust_head(xdp, o->bytes))
		return BALANCE_MALFORMED;
	f = frame_of(xdp);
	eth = f.data;
	if ((void *)(eth + 1) > f.end)
		return BALANCE_UNWRITABLE;
	*eth = o->link;
	return BALANCE_UNWRAPPED;
}

#endif

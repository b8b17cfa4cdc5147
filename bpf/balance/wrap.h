/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The frame as it leaves for a backend: with its address only (L2), or behind an outer header (IP in IP, RFC 2003 and
 * RFC 2473; GUE version 0).
 *
 * Input: a packet, a backend, and where it leaves. Output: the frame. Called by balance.h.
 */
#ifndef WAYMARK_BALANCE_WRAP_H
#define WAYMARK_BALANCE_WRAP_H

#include "balance/gue.h"

#define BALANCE_TTL 64 /* of outer headers */

/* Bytes in front of a packet. */
static __always_inline __u32 balance_added(const struct balance_backend *b)
{
	if (b->forwarding == BALANCE_L2)
		return 0;
	return (b->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) +
	       (b->forwarding == BALANCE_GUE ? BALANCE_GUE_BYTES : 0);
}

static __always_inline __u8 balance_inner_proto(const struct packet *p)
{
	return p->id.meta >> META_IPV6_SHIFT & 1 ? IPPROTO_IPV6 : IPPROTO_IPIP;
}

/* Without a checksum (RFC 6935, RFC 6936): the packet inside has its own. */
static __always_inline void balance_wrap_gue(void *at, const struct balance_view *v,
					     const struct packet *p)
{
	struct udphdr *udp = at;
	struct gue_header *gue = (void *)(udp + 1);

	udp->source = bpf_htons(0xc000 | (v->hash >> 16 & 0x3fff));
	udp->dest = bpf_htons(BALANCE_GUE_PORT);
	udp->len = bpf_htons(BALANCE_GUE_BYTES + p->id.bytes);
	udp->check = 0;
	gue->form = 0;
	gue->proto = balance_inner_proto(p);
	gue->flags = 0;
}

static __always_inline void balance_wrap4(struct iphdr *ip, const struct balance_view *v,
					  const struct balance_backend *b, const struct packet *p,
					  __be16 fragment)
{
	const __be32 *from = (const void *)b->source, *to = (const void *)b->addr;

	ip->version = 4;
	ip->ihl = 5;
	ip->tos = p->id.tos;
	ip->tot_len = bpf_htons(v->added + p->id.bytes);
	ip->id = (__be16)(v->hash >> 24);
	ip->frag_off = fragment;
	ip->ttl = BALANCE_TTL;
	ip->protocol = b->forwarding == BALANCE_GUE ? IPPROTO_UDP : balance_inner_proto(p);
	ip->check = 0;
	ip->saddr = from[3];
	ip->daddr = to[3];
	ip->check = ~ipv4_sum(ip);
}

static __always_inline void balance_wrap6(struct ipv6hdr *ip, const struct balance_view *v,
					  const struct balance_backend *b, const struct packet *p)
{
	*(__be32 *)ip = bpf_htonl(6U << 28 | (__u32)p->id.tos << 20 | (v->hash >> 32 & 0xfffff));
	ip->payload_len = bpf_htons(v->added - sizeof(*ip) + p->id.bytes);
	ip->nexthdr = b->forwarding == BALANCE_GUE ? IPPROTO_UDP : balance_inner_proto(p);
	ip->hop_limit = BALANCE_TTL;
	__builtin_memcpy(&ip->saddr, b->source, 16);
	__builtin_memcpy(&ip->daddr, b->addr, 16);
}

/* Writes the outer headers. Not 0: they do not fit. */
static __always_inline int balance_wrap_ip(frame_ctx *xdp, const struct balance_view *v,
					   const struct balance_backend *b, const struct packet *p,
					   __be16 fragment)
{
	struct frame f = frame_of(xdp);
	void *ip = f.data + sizeof(struct ethhdr), *udp;

	udp = ip + (b->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	if (b->ipv6) {
		if (ip + sizeof(struct ipv6hdr) > f.end)
			return -1;
		balance_wrap6(ip, v, b, p);
	} else {
		if (ip + sizeof(struct iphdr) > f.end)
			return -1;
		balance_wrap4(ip, v, b, p, fragment);
	}
	if (b->forwarding != BALANCE_GUE)
		return 0;
	if (udp + BALANCE_GUE_BYTES > f.end)
		return -1;
	balance_wrap_gue(udp, v, p);
	return 0;
}

/* "Don't fragment" of an IPv4 packet, which its outer header has, too. */
static __always_inline __be16 balance_fragment(frame_ctx *xdp, const struct packet *p)
{
	struct frame f = frame_of(xdp);
	const struct iphdr *ip = f.data + sizeof(struct ethhdr);

	if (p->id.meta >> META_IPV6_SHIFT & 1 || (const void *)(ip + 1) > f.end)
		return bpf_htons(0x4000);
	return ip->frag_off & bpf_htons(0x4000);
}

/* Not 0: the frame is not as it was, and of no use. */
static __always_inline int balance_write(frame_ctx *xdp, struct balance_view *v,
					 const struct balance_backend *b, const struct packet *p,
					 const struct balance_hop *hop)
{
	int padding = v->len - sizeof(struct ethhdr) - p->id.bytes;
	struct ethhdr *eth;
	__be16 fragment;
	struct frame f;

	if (padding > 0 && bpf_xdp_adjust_tail(xdp, -padding))
		return -1;
	if (v->added) {
		fragment = balance_fragment(xdp, p);
		if (bpf_xdp_adjust_head(xdp, -(int)v->added) ||
		    balance_wrap_ip(xdp, v, b, p, fragment))
			return -1;
	}
	f = frame_of(xdp);
	eth = f.data;
	if ((void *)(eth + 1) > f.end)
		return -1;
	port_copy_mac(eth->h_dest, hop->dmac);
	port_copy_mac(eth->h_source, hop->smac);
	if (v->added)
		eth->h_proto = b->ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	return 0;
}

#endif

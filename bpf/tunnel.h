/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From the flow of a tunnel to the flow inside it, on request (cfg_tunnels).
 *
 * Input: a parsed outer packet. Output: the inner packet in its place, or the outer
 * one untouched when there is no inner packet that can be read.
 */
#ifndef WAYMARK_TUNNEL_H
#define WAYMARK_TUNNEL_H

#include "scratch.h"

#define PORT_VXLAN 4789 /* RFC 7348 */
#define PORT_GENEVE 6081 /* RFC 8926 */

static __always_inline bool is_tunnel_port(__be16 port)
{
	return port == bpf_htons(PORT_VXLAN) || port == bpf_htons(PORT_GENEVE);
}

#define GRE_UNREADABLE 0x4007 /* routing, or a version that is not 0 */
#define VXLAN_VNI_VALID bpf_htonl(0x08000000)

struct gre_header {
	__be16 flags;
	__be16 proto;
};

struct geneve_header {
	__u8 ver_opt_len;
	__u8 flags;
	__be16 proto;
	__be32 vni;
};

struct vxlan_header {
	__be32 flags;
	__be32 vni;
};

static __always_inline bool wants_tunnel(__u32 tunnel)
{
	return cfg_tunnels & 1 << tunnel;
}

/* Inner Ethernet header with up to two tags, which are not recorded. */
static __always_inline bool skip_inner_ethernet(struct cursor *c, __be16 *proto)
{
	struct vlan_header *tag;
	struct ethhdr *eth = HEADER(c, struct ethhdr);

	if (!eth)
		return false;
	*proto = eth->h_proto;
	c->pos += sizeof(*eth);
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		if (*proto != bpf_htons(ETH_P_8021Q) && *proto != bpf_htons(ETH_P_8021AD))
			break;
		tag = HEADER(c, struct vlan_header);
		if (!tag)
			return false;
		*proto = tag->proto;
		c->pos += sizeof(*tag);
	}
	return true;
}

/* GRE version 0 (RFC 2784, 2890): optional checksum, key and sequence. */
static __always_inline bool skip_gre(struct cursor *c, __be16 *proto, __u32 *vni)
{
	struct gre_header *gre = HEADER(c, struct gre_header);
	__u16 flags;

	if (!gre)
		return false;
	flags = bpf_ntohs(gre->flags);
	if (flags & GRE_UNREADABLE)
		return false;
	*proto = gre->proto;
	c->pos += sizeof(*gre);
	if (flags & 0x8000)
		c->pos += 4;
	if (flags & 0x2000) {
		__be32 *key = HEADER(c, __be32);

		if (!key)
			return false;
		*vni = bpf_ntohl(*key);
		c->pos += 4;
	}
	if (flags & 0x1000)
		c->pos += 4;
	return true;
}

/* Moves behind the tunnel's header: which tunnel it was, or TUNNEL_NONE. */
static __always_inline __u32 skip_tunnel(struct cursor *c, const struct packet *p, __be16 *proto,
					 __u32 *vni)
{
	if (p->l4_offset > HEADERS_MAX)
		return TUNNEL_NONE;
	c->pos = c->frame.data + p->l4_offset;
	switch (p->id.proto) {
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
		*proto = p->id.proto == IPPROTO_IPIP ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
		return wants_tunnel(TUNNEL_IPIP) ? TUNNEL_IPIP : TUNNEL_NONE;
	case IPPROTO_GRE:
		if (!wants_tunnel(TUNNEL_GRE) || !skip_gre(c, proto, vni))
			return TUNNEL_NONE;
		return TUNNEL_GRE;
	case IPPROTO_UDP:
		c->pos += sizeof(struct udphdr);
		if (p->id.dport == bpf_htons(PORT_VXLAN) && wants_tunnel(TUNNEL_VXLAN)) {
			struct vxlan_header *vxlan = HEADER(c, struct vxlan_header);

			if (!vxlan || !(vxlan->flags & VXLAN_VNI_VALID))
				return TUNNEL_NONE;
			*vni = bpf_ntohl(vxlan->vni) >> 8;
			*proto = bpf_htons(ETH_P_TEB);
			c->pos += sizeof(*vxlan);
			return TUNNEL_VXLAN;
		}
		if (p->id.dport == bpf_htons(PORT_GENEVE) && wants_tunnel(TUNNEL_GENEVE)) {
			struct geneve_header *geneve = HEADER(c, struct geneve_header);

			if (!geneve || geneve->ver_opt_len >> 6)
				return TUNNEL_NONE;
			*vni = bpf_ntohl(geneve->vni) >> 8;
			*proto = geneve->proto;
			c->pos += sizeof(*geneve) + (geneve->ver_opt_len & 0x3f) * 4;
			return TUNNEL_GENEVE;
		}
	}
	return TUNNEL_NONE;
}

/* The inner packet in *p; whatever it returns but PARSE_OK, *p is spoilt. */
static __always_inline int parse_inner(struct cursor *c, const struct packet *outer,
				       struct packet *p)
{
	__be16 proto = 0;
	__u32 tunnel, vni = 0;

	tunnel = skip_tunnel(c, outer, &proto, &vni);
	if (tunnel == TUNNEL_NONE)
		return REASON_ETHERTYPE;
	if (proto == bpf_htons(ETH_P_TEB) && !skip_inner_ethernet(c, &proto))
		return REASON_ETHERTYPE;
	if (proto != bpf_htons(ETH_P_IP) && proto != bpf_htons(ETH_P_IPV6))
		return REASON_ETHERTYPE;
	if (offset_of(c) > c->len)
		return REASON_MALFORMED;
	__builtin_memset(p, 0, sizeof(*p));
	p->vni = vni;
	p->id.iface = outer->id.iface;
	p->id.meta = (outer->id.meta & ~(1u << META_IPV6_SHIFT)) | tunnel << META_TUNNEL_SHIFT;
	return parse_ip(c, p, proto);
}

/* PARSE_OK, with the outer or the inner packet in *p, or PARSE_PULL. */
__feature(FEATURE_TUNNELS) __noinline int parse_tunnel(frame_ctx *ctx, struct packet *p)
{
	struct packet *outer;
	struct cursor c = {};
	int rc;

	if (!p)
		return PARSE_OK;
	outer = SCRATCH(struct packet, outer_packet);
	if (!outer)
		return PARSE_OK;
	*outer = *p;
	c.frame = frame_of(ctx);
	/* The inner packet ends where the outer one does, at the latest. */
	c.len = p->l3_offset + p->id.bytes;
	rc = parse_inner(&c, outer, p);
	if (rc == PARSE_PULL)
		return rc;
	if (rc != PARSE_OK)
		*p = *outer;
	return PARSE_OK;
}

#endif

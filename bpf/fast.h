/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The packets that most traffic consists of, in few instructions: Ethernet
 * without a tag, IPv4 without options or IPv6 without extension headers (but those of packets that
 * are marked), no fragment, TCP or UDP, and GSO frames of TCP.
 *
 * Input: the packet. Output: true and what parse() would find; or false: parse() has
 * to look, and to tell what is wrong where something is.
 */
#ifndef WAYMARK_FAST_H
#define WAYMARK_FAST_H

/* Bytes of the one extension header of packets that are marked (pdm/option.h). */
#define FAST_OPTIONS 16

/*
 * A GSO frame of TCP, as its segments: what measure_burst() finds. Not static: verified once. A temporary jumbo option
 * has no length in the IP header, so such frames do not come here.
 */
__noinline int fast_burst(frame_ctx *ctx, struct packet *p, __u32 header)
{
	__u32 more, repeated;

	if (!p)
		return 0;
	repeated = sizeof(struct ethhdr) + header;
	more = segments_behind(ctx, repeated) - 1;
	p->id.packets = more + 1;
	p->id.bytes += more * header;
	p->repeated = repeated;
	p->gso_packets = more;
	p->gso_bytes = more * repeated;
	p->rare |= more;
	return 0;
}

/* All that is not in the IP header. FAST_L4 bytes are there from l4 on. */
static __always_inline bool fast_transport(frame_ctx *ctx, const void *end, struct packet *p,
					   const __u8 *l4, __u32 ip_len, __u32 total, __u8 proto,
					   __u32 features)
{
	__u32 header = ip_len + sizeof(struct udphdr), rare = is_congested(p->id.tos), present;

	p->id.proto = proto;
	p->id.tcp_flags = 0;
	p->id.iface = iface_of(ctx);
	set_ports(p, l4);
	__builtin_memset(&p->gso_packets, 0,
			 offsetof(struct packet, frag_id) - offsetof(struct packet, gso_packets));
	if (proto == IPPROTO_TCP) {
		if ((const void *)l4 + sizeof(struct tcphdr) > end)
			return false;
		header = ip_len + (l4[12] >> 4 << 2);
		if (header < ip_len + sizeof(struct tcphdr))
			return false;
		p->id.tcp_flags = l4[13];
		p->tcp_flags_high = l4[12] & 0xf;
		rare |= l4[12] & 0xf;
	} else if (proto != IPPROTO_UDP ||
		   (features & FEATURE_TUNNELS && is_tunnel_port(p->id.dport))) {
		return false;
	}
	present = frame_len(ctx) - sizeof(struct ethhdr);
	if (total > present || total < header)
		return false;
	p->id.packets = 1;
	p->id.bytes = total;
	p->id.payload = total - header;
	p->overhead = present - total;
	p->rare = rare | p->overhead;
	p->l4_offset = sizeof(struct ethhdr) + ip_len;
	if (features & (FEATURE_PDM | FEATURE_IOAM)) {
		p->l3_offset = sizeof(struct ethhdr);
		p->l4_len = header - ip_len;
	}
	if (frame_gso_size(ctx)) {
		if (proto != IPPROTO_TCP)
			return false;
		fast_burst(ctx, p, header);
	}
	return true;
}

/* Bytes of the frame that have to be there. */
#define FAST_L4 sizeof(struct udphdr)
#define FAST_IPV4 (sizeof(struct ethhdr) + sizeof(struct iphdr) + FAST_L4)
#define FAST_IPV6 (sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + FAST_L4)

static __always_inline bool fast_ipv4(frame_ctx *ctx, __u32 direction, __u32 features,
				      struct packet *p, const struct iphdr *ip, const void *end)
{
	if (*(const __u8 *)ip != 0x45 || ip->frag_off & bpf_htons(0x3fff))
		return false;
	p->flow_label = 0;
	p->id.meta = direction << META_DIRECTION_SHIFT | L2_ETHER << META_L2_SHIFT;
	p->id.tos = ip->tos;
	p->id.ttl = ip->ttl;
	if (!fast_transport(ctx, end, p, (const void *)(ip + 1), sizeof(*ip),
			    bpf_ntohs(ip->tot_len), ip->protocol, features))
		return false;
	set_ipv4(p, ip);
	return true;
}

static __always_inline bool fast_ipv6(frame_ctx *ctx, __u32 direction, __u32 features,
				      struct packet *p, const struct ipv6hdr *ip, const void *end)
{
	__u32 word = bpf_ntohl(*(__be32 *)ip), total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	const __u8 *l4 = (const void *)(ip + 1);

	if (word >> 28 != 6)
		return false;
	p->flow_label = word & 0xfffff;
	p->id.meta = direction << META_DIRECTION_SHIFT | 1 << META_IPV6_SHIFT |
		     L2_ETHER << META_L2_SHIFT;
	p->id.tos = word >> 20;
	p->id.ttl = ip->hop_limit;
	if (features & FEATURE_IOAM && ip->nexthdr == IPPROTO_HOPOPTS) {
		__u32 size = (l4[1] + 1) * 8; /* of packets with traces */

		if ((const void *)l4 + size + FAST_L4 > end ||
		    !fast_transport(ctx, end, p, l4 + size, sizeof(*ip) + size, total, l4[0],
				    features))
			return false;
	} else if (features & FEATURE_PDM && ip->nexthdr == IPPROTO_DSTOPTS) {
		if ((const void *)l4 + FAST_OPTIONS + FAST_L4 > end ||
		    l4[1] != FAST_OPTIONS / 8 - 1 ||
		    !fast_transport(ctx, end, p, l4 + FAST_OPTIONS, sizeof(*ip) + FAST_OPTIONS,
				    total, l4[0], features))
			return false;
	} else if (!fast_transport(ctx, end, p, l4, sizeof(*ip), total, ip->nexthdr, features)) {
		return false;
	}
	set_ipv6(p, ip);
	return true;
}

/* What most packets that are in no flow are, without the work of parse(). */
static __always_inline bool is_arp(frame_ctx *ctx, __u32 features)
{
	struct frame f = frame_of(ctx);
	const struct ethhdr *eth = f.data;
	__u32 tci;

	return !(features & FEATURE_NO_LINK) && (void *)(eth + 1) <= f.end &&
	       eth->h_proto == bpf_htons(ETH_P_ARP) && !frame_tag(ctx, &tci);
}

static __always_inline bool parse_fast(frame_ctx *ctx, __u32 direction, __u32 features,
				       struct packet *p)
{
	struct frame f;
	__u32 tci;
	__be16 proto;
	void *ip;

	p->id.last = bpf_jiffies64(); /* first: calls leave few registers */
	f = frame_of(ctx);
	ip = f.data + sizeof(struct ethhdr);
	if (features & FEATURE_NO_LINK || f.data + FAST_IPV4 > f.end || frame_tag(ctx, &tci))
		return false;
	proto = *(__be16 *)(f.data + offsetof(struct ethhdr, h_proto));
	if (proto == bpf_htons(ETH_P_IP))
		return fast_ipv4(ctx, direction, features, p, ip, f.end);
	if (proto == bpf_htons(ETH_P_IPV6) && f.data + FAST_IPV6 <= f.end)
		return fast_ipv6(ctx, direction, features, p, ip, f.end);
	return false;
}

#endif

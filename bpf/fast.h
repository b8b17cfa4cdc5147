/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The packets that most traffic consists of, in few instructions: Ethernet
 * without a tag, IPv4 without options or IPv6 without extension headers, no
 * fragment, no GSO, TCP or UDP.
 *
 * In: the packet. Out: true and what parse() would find; or false: parse() has
 * to look, and to tell what is wrong where something is.
 */
#ifndef WAYMARK_FAST_H
#define WAYMARK_FAST_H

/* What an IP header tells. */
struct fast_ip {
	void *l4;
	__u32 len; /* of the header */
	__u32 total; /* of the packet */
	__u32 meta; /* flow_slot.meta */
	__u8 proto;
	__u8 tos;
	__u8 ttl;
};

static __always_inline bool fast_transport(struct __sk_buff *skb, struct packet *p,
					   const struct fast_ip *ip)
{
	__u32 present = skb->len - sizeof(struct ethhdr), l4_len = sizeof(struct udphdr);
	void *l4 = ip->l4, *end = (void *)(long)skb->data_end;
	__u8 flags_high = 0;
	__u64 meta;
	__u16 word;

	meta = ip->meta | (__u64)ip->proto << 32 | (__u64)ip->tos << 40 | (__u64)ip->ttl << 48;
	if (ip->proto == IPPROTO_TCP) {
		if (l4 + sizeof(struct tcphdr) > end)
			return false;
		word = bpf_ntohs(((__be16 *)l4)[6]);
		l4_len = word >> 12 << 2;
		if (l4_len < sizeof(struct tcphdr))
			return false;
		flags_high = word >> 8 & 0xf;
		meta |= (__u64)word << 56;
	} else if (ip->proto != IPPROTO_UDP || cfg_tunnels || l4 + sizeof(struct udphdr) > end) {
		return false;
	}
	if (ip->total > present || ip->total < ip->len + l4_len)
		return false;

	p->word[WORD_META] = meta;
	set_ports(p, iface_of(skb), l4);
	p->word[WORD_COUNTS] = (__u64)ip->total << 32 | 1; /* octets and packets */
	p->word[WORD_PAYLOAD] = ip->total - ip->len - l4_len;
	p->l4_offset = sizeof(struct ethhdr) + ip->len;
	p->overhead = present - ip->total;
	p->rare = p->overhead | flags_high | is_congested(ip->tos);
	p->special[0] = 0;
	p->special[1] = 0;
	p->tcp_flags_high = flags_high;
	if (cfg_pdm) {
		p->l3_offset = sizeof(struct ethhdr);
		p->l4_len = l4_len;
	}
	return true;
}

/* Octets of the one extension header of packets that are marked (pdm_option.h). */
#define FAST_OPTIONS 16

static __always_inline bool fast_options(struct __sk_buff *skb, struct fast_ip *ip)
{
	__u8 *header = ip->l4;

	if (ip->proto != IPPROTO_DSTOPTS)
		return true;
	if ((void *)header + FAST_OPTIONS > (void *)(long)skb->data_end ||
	    header[1] != FAST_OPTIONS / 8 - 1)
		return false;
	ip->l4 += FAST_OPTIONS;
	ip->len += FAST_OPTIONS;
	ip->proto = header[0];
	return true;
}

static __always_inline bool parse_fast(struct __sk_buff *skb, __u32 direction, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 meta = direction << META_DIRECTION_SHIFT | L2_ETHER << META_L2_SHIFT, word;
	struct ipv6hdr *v6 = data + sizeof(struct ethhdr);
	struct iphdr *v4 = data + sizeof(struct ethhdr);
	__be16 proto;

	if (cfg_no_link_header || (void *)(v4 + 1) > end || skb->vlan_present || skb->gso_size)
		return false;
	proto = *(__be16 *)(data + offsetof(struct ethhdr, h_proto));
	if (proto == bpf_htons(ETH_P_IP)) {
		struct fast_ip ip = {
			.l4 = v4 + 1,
			.len = sizeof(*v4),
			.total = bpf_ntohs(v4->tot_len),
			.meta = meta,
			.proto = v4->protocol,
			.tos = v4->tos,
			.ttl = v4->ttl,
		};

		if (*(__u8 *)v4 != 0x45 || v4->frag_off & bpf_htons(0x3fff))
			return false;
		if (!fast_transport(skb, p, &ip))
			return false;
		p->flow_label = 0;
		set_ipv4(p, v4);
		finish_hash(p);
		return true;
	}
	if (proto == bpf_htons(ETH_P_IPV6) && (void *)(v6 + 1) <= end) {
		struct fast_ip ip = {
			.l4 = v6 + 1,
			.len = sizeof(*v6),
			.total = sizeof(*v6) + bpf_ntohs(v6->payload_len),
			.meta = meta | 1 << META_IPV6_SHIFT,
			.proto = v6->nexthdr,
			.ttl = v6->hop_limit,
		};

		word = bpf_ntohl(*(__be32 *)v6);
		if (word >> 28 != 6)
			return false;
		ip.tos = word >> 20;
		if (cfg_pdm && !fast_options(skb, &ip))
			return false;
		if (!fast_transport(skb, p, &ip))
			return false;
		p->flow_label = word & 0xfffff;
		set_ipv6(p, v6);
		finish_hash(p);
		return true;
	}
	return false;
}

#endif

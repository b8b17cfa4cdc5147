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

/* What the headers of such a packet tell; its addresses stay where they are. */
struct common {
	void *l4;
	__u32 ip_len; /* of the IP header */
	__u32 l4_len; /* of the transport header */
	__u32 total; /* of the IP packet, as it says */
	__u32 tcp_flags_high;
	__u32 tos;
	__u64 ports; /* WORD_PORTS */
	__u64 meta; /* WORD_META */
	__u8 proto;
};

static __always_inline __u64 common_meta(__u32 direction, __u32 ipv6, __u32 proto, __u32 tos,
					 __u32 ttl)
{
	__u32 low = direction << META_DIRECTION_SHIFT | ipv6 << META_IPV6_SHIFT |
		    L2_ETHER << META_L2_SHIFT;

	return low | (__u64)proto << 32 | (__u64)tos << 40 | (__u64)ttl << 48;
}

/* False where it is neither TCP nor UDP, or its header is not all there. */
static __always_inline bool common_transport(struct __sk_buff *skb, struct common *c)
{
	void *end = (void *)(long)skb->data_end;
	__u16 word;

	c->l4_len = sizeof(struct udphdr);
	c->tcp_flags_high = 0;
	if (c->proto == IPPROTO_TCP) {
		if (c->l4 + sizeof(struct tcphdr) > end)
			return false;
		word = bpf_ntohs(((__be16 *)c->l4)[6]);
		c->l4_len = word >> 12 << 2;
		if (c->l4_len < sizeof(struct tcphdr))
			return false;
		c->tcp_flags_high = word >> 8 & 0xf;
		c->meta |= (__u64)word << 56;
	} else if (c->proto != IPPROTO_UDP || c->l4 + sizeof(struct udphdr) > end) {
		return false;
	}
	c->ports = (__u64)iface_of(skb) << 32 | *(const __u32 *)c->l4;
	return true;
}

static __always_inline bool common_ipv4(struct __sk_buff *skb, __u32 direction,
					const struct iphdr *ip, struct common *c)
{
	if (*(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(0x3fff))
		return false;
	c->l4 = (void *)(ip + 1);
	c->ip_len = sizeof(*ip);
	c->total = bpf_ntohs(ip->tot_len);
	c->proto = ip->protocol;
	c->tos = ip->tos;
	c->meta = common_meta(direction, 0, ip->protocol, ip->tos, ip->ttl);
	return common_transport(skb, c);
}

/* Octets of the one extension header of packets that are marked (pdm_option.h). */
#define COMMON_OPTIONS 16

static __always_inline bool common_ipv6(struct __sk_buff *skb, __u32 direction,
					const struct ipv6hdr *ip, bool options, struct common *c)
{
	__u32 word = bpf_ntohl(*(__be32 *)ip);
	__u8 *header = (void *)(ip + 1);

	if (word >> 28 != 6)
		return false;
	c->l4 = header;
	c->ip_len = sizeof(*ip);
	c->total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	c->proto = ip->nexthdr;
	if (options && c->proto == IPPROTO_DSTOPTS) {
		if ((void *)header + COMMON_OPTIONS > (void *)(long)skb->data_end ||
		    header[1] != COMMON_OPTIONS / 8 - 1)
			return false;
		c->l4 += COMMON_OPTIONS;
		c->ip_len += COMMON_OPTIONS;
		c->proto = header[0];
	}
	c->tos = word >> 20 & 0xff;
	c->meta = common_meta(direction, 1, c->proto, c->tos, ip->hop_limit);
	return common_transport(skb, c);
}

/* The IP header of a frame that may be such a packet, and its protocol; or NULL. */
static __always_inline void *common_link(struct __sk_buff *skb, __be16 *proto)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	void *ip = data + sizeof(struct ethhdr);

	if (ip + sizeof(struct iphdr) > end || skb->vlan_present || skb->gso_size)
		return NULL;
	*proto = *(__be16 *)(data + offsetof(struct ethhdr, h_proto));
	if (*proto == bpf_htons(ETH_P_IPV6) && ip + sizeof(struct ipv6hdr) > end)
		return NULL;
	return ip;
}

_Static_assert(offsetof(struct packet, gso_packets) % 8 == 0, "three words of 64 bits");
_Static_assert(offsetof(struct packet, tcp_flags_high) == offsetof(struct packet, gso_packets) + 12,
	       "the octet that is shifted by 32 bits");

static __always_inline bool parse_fast(struct __sk_buff *skb, __u32 direction, struct packet *p)
{
	__u32 present = skb->len - sizeof(struct ethhdr);
	struct common c;
	__u64 *special;
	__be16 proto;
	void *ip;

	if (cfg_no_link_header)
		return false;
	ip = common_link(skb, &proto);
	if (!ip)
		return false;
	if (proto == bpf_htons(ETH_P_IP)) {
		if (!common_ipv4(skb, direction, ip, &c))
			return false;
		p->flow_label = 0;
		set_ipv4(p, ip);
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		if (!common_ipv6(skb, direction, ip, cfg_pdm, &c))
			return false;
		p->flow_label = bpf_ntohl(*(__be32 *)ip) & 0xfffff;
		set_ipv6(p, ip);
	} else {
		return false;
	}
	if (cfg_tunnels && c.proto == IPPROTO_UDP)
		return false;
	if (c.total > present || c.total < c.ip_len + c.l4_len)
		return false;
	p->word[WORD_META] = c.meta;
	p->word[WORD_PORTS] = c.ports;
	p->word[WORD_COUNTS] = (__u64)c.total << 32 | 1; /* octets and packets */
	p->word[WORD_PAYLOAD] = bpf_jiffies64() << 32 | (c.total - c.ip_len - c.l4_len);
	p->l4_offset = sizeof(struct ethhdr) + c.ip_len;
	p->overhead = present - c.total;
	p->rare = p->overhead | c.tcp_flags_high | is_congested(c.tos);
	special = (__u64 *)&p->gso_packets; /* up to rtt_initiator, with three stores */
	special[0] = 0;
	special[1] = (__u64)c.tcp_flags_high << 32;
	special[2] = 0;
	if (cfg_pdm) {
		p->l3_offset = sizeof(struct ethhdr);
		p->l4_len = c.l4_len;
	}
	finish_hash(p);
	return true;
}

#endif

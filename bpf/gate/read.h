/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What rules may ask about a packet. A damaged packet is no reason to stop: what cannot be read is absent, and
 * no condition about it holds. rules.ReadEthernet() in Go reads the same.
 *
 * Input: a frame. Output: struct gate_facts.
 */
#ifndef WAYMARK_GATE_READ_H
#define WAYMARK_GATE_READ_H

struct gate_facts {
	__u64 src_high, src_low; /* as in gate_node */
	__u64 dst_high, dst_low;
	__u64 bytes;
	__u32 packets; /* that the frame stands for */
	__u32 length; /* by the IP header */
	__u32 rules; /* first of the copy in gate_rules */
	__u16 sport, dport;
	__u16 vlan;
	__u16 head; /* enum gate_head */
	__u16 sub; /* enum gate_sub */
	__u8 dscp; /* enum gate_dscp */
	bool ip; /* IPv4 or IPv6, by the EtherType */
	bool ipv6;
	bool header; /* the IP header is whole: else only vlan and ip are known */
	bool ports;
	bool tagged;
	bool fragment;
	__u8 marks; /* enum gate_mark */
	bool quiet; /* nothing is counted: the packet has met the rules before */
	bool exempt; /* of a ban: that is counted, too */
	__u32 decided; /* id of the rule that decided; 0: none */
	__u32 sampled; /* of the first that samples the packet */
	__u32 at; /* while extension headers are read: of a register, the verifier follows each value */
	__u32 slot; /* of the counters of the rule that decided, if it is the only one that has counted the packet */
};

_Static_assert(sizeof(struct gate_facts) == 88, "no bytes that the verifier finds unwritten");

#define GATE_EXT_HEADERS 8

/* Extension headers that rules look behind. Others are protocols to them. */
#define GATE_EXT                                                                        \
	(1ULL << IPPROTO_HOPOPTS | 1ULL << IPPROTO_ROUTING | 1ULL << IPPROTO_FRAGMENT | \
	 1ULL << IPPROTO_AH | 1ULL << IPPROTO_DSTOPTS)

static __always_inline bool gate_is_extension(__u8 next)
{
	return next < 64 ? GATE_EXT >> next & 1 : next == 135;
}

static __always_inline __u16 gate_head_of(const struct gate_facts *f, __u32 proto)
{
	__u32 state = f->header ? f->fragment ? GATE_STATE_IPV4_FRAGMENT : GATE_STATE_IPV4_WHOLE
				: GATE_STATE_IPV4;

	return (state + f->ipv6) * GATE_PROTOS + proto;
}

static __always_inline void gate_set_ipv4(struct gate_facts *f, const struct iphdr *ip)
{
	f->src_high = (__u64)bpf_ntohl(ip->saddr) << 32;
	f->dst_high = (__u64)bpf_ntohl(ip->daddr) << 32;
	f->src_low = f->dst_low = 0;
	f->dscp = ip->tos >> 2;
	f->header = true;
}

static __always_inline void gate_set_ipv6(struct gate_facts *f, const struct ipv6hdr *ip)
{
	const __u64 *addr = (const void *)&ip->saddr;

	f->src_high = bpf_be64_to_cpu(addr[0]);
	f->src_low = bpf_be64_to_cpu(addr[1]);
	f->dst_high = bpf_be64_to_cpu(addr[2]);
	f->dst_low = bpf_be64_to_cpu(addr[3]);
	f->dscp = bpf_ntohs(*(const __be16 *)ip) >> 6 & 0x3f;
	f->header = true;
	f->ipv6 = true;
}

/* Header of the upper layer, of which n bytes are there. */
static __always_inline void gate_read_transport(frame_ctx *ctx, struct gate_facts *f, __u32 proto,
						__u32 at, __s32 n)
{
	__be16 ports[2];
	__u8 byte;

	switch (proto) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
	case IPPROTO_SCTP:
		if (n < 4 || frame_load(ctx, at, ports, sizeof(ports)))
			return;
		f->sport = bpf_ntohs(ports[0]);
		f->dport = bpf_ntohs(ports[1]);
		f->ports = true;
		if (proto == IPPROTO_TCP && n >= 14 && !frame_load(ctx, at + 13, &byte, 1))
			f->sub = byte;
		return;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (n >= 1 && (proto == IPPROTO_ICMPV6) == f->ipv6 &&
		    !frame_load(ctx, at, &byte, 1))
			f->sub = GATE_SUB_TYPE + byte;
	}
}

static __always_inline void gate_read_ipv4(frame_ctx *ctx, struct gate_facts *f, __u32 at,
					   __u32 present)
{
	__u32 header, length, fragment;
	struct iphdr ip;

	if (present < sizeof(ip) || frame_load(ctx, at, &ip, sizeof(ip)))
		return;
	header = (*(__u8 *)&ip & 15) * 4;
	length = bpf_ntohs(ip.tot_len);
	if (!length && frame_gso_size(ctx)) /* BIG TCP */
		length = present < 65535 ? present : 65535;
	if (*(__u8 *)&ip >> 4 != 4 || header < sizeof(ip) || length < header)
		return;
	gate_set_ipv4(f, &ip);
	f->length = length;
	fragment = bpf_ntohs(ip.frag_off) & 0x3fff;
	f->fragment = fragment != 0;
	f->head = gate_head_of(f, ip.protocol);
	if (!(fragment & 0x1fff) && present >= header)
		gate_read_transport(ctx, f, ip.protocol, at + header,
				    (present < length ? present : length) - header);
}

/* Passes the extension headers. Output: the protocol behind them, or GATE_PROTO_NONE. */
static __always_inline __u32 gate_read_extensions(frame_ctx *ctx, struct gate_facts *f, __u8 next,
						  __u32 *at, __u32 end, bool *later)
{
	struct ext_header ext;
	__u32 len;

	f->at = *at;
#pragma clang loop unroll(disable)
	for (int i = 0; i <= GATE_EXT_HEADERS; i++) {
		*at = WHOLE(f->at);
		if (!gate_is_extension(next))
			return next;
		f->fragment |= next == IPPROTO_FRAGMENT;
		if (*at + sizeof(ext) > end || frame_load(ctx, *at, &ext, sizeof(ext)))
			return GATE_PROTO_NONE;
		if (next == IPPROTO_FRAGMENT && bpf_ntohs(ext.rest) >> 3) {
			*later = true;
			return ext.next;
		}
		len = (ext.len + 1) * 8;
		if (next == IPPROTO_AH)
			len = (ext.len + 2) * 4;
		if (next == IPPROTO_FRAGMENT)
			len = sizeof(ext);
		if (*at + len > end)
			return GATE_PROTO_NONE;
		WHOLE(f->at) = *at + len;
		next = ext.next;
	}
	return GATE_PROTO_NONE;
}

static __always_inline void gate_read_ipv6(frame_ctx *ctx, struct gate_facts *f, __u32 at,
					   __u32 present)
{
	__u32 length, end, next;
	struct ipv6hdr ip __attribute__((aligned(8))); /* so that addresses are whole words */
	bool later = false;

	f->ipv6 = true;
	if (present < sizeof(ip) || frame_load(ctx, at, &ip, sizeof(ip)) || *(__u8 *)&ip >> 4 != 6)
		return;
	gate_set_ipv6(f, &ip);
	length = sizeof(ip) + bpf_ntohs(ip.payload_len);
	if (!ip.payload_len && frame_gso_size(ctx)) /* BIG TCP */
		length = present;
	f->length = length < 65535 ? length : 65535;
	end = at + (present < length ? present : length);
	at += sizeof(ip);
	next = gate_read_extensions(ctx, f, ip.nexthdr, &at, end, &later);
	f->head = gate_head_of(f, next);
	if (!later && next != GATE_PROTO_NONE)
		gate_read_transport(ctx, f, next, at, end - at);
}

/* Any frame. Verified alone. */
__feature(FEATURE_GATE) __noinline int gate_read(frame_ctx *ctx, struct gate_facts *f)
{
	__u32 len = frame_len(ctx), at = 0, tags = 0, tci = 0;
	struct vlan_header tag;
	__be16 proto = 0;
	__u8 byte;

	if (!f)
		return 0;
	__builtin_memset(f, 0, sizeof(*f));
	f->sub = GATE_SUB_NONE;
	f->dscp = GATE_DSCP_NONE;
	f->bytes = len;
	if (cfg_features & FEATURE_NO_LINK) {
		if (frame_load(ctx, 0, &byte, 1))
			return 0;
		if (byte >> 4 == 4)
			proto = bpf_htons(ETH_P_IP);
		else if (byte >> 4 == 6)
			proto = bpf_htons(ETH_P_IPV6);
	} else {
		if (len < ETH_HLEN || frame_load(ctx, 12, &proto, sizeof(proto)))
			return 0;
		at = ETH_HLEN;
		if (frame_tag(ctx, &tci)) {
			f->tagged = true;
			f->vlan = tci & 0xfff;
			tags = 1;
		}
		for (int i = 0; i < VLAN_TAGS_MAX; i++, tags++) {
			if (tags == VLAN_TAGS_MAX || at + sizeof(tag) > len ||
			    (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD)) ||
			    frame_load(ctx, at, &tag, sizeof(tag)))
				break;
			if (!tags) {
				f->tagged = true;
				f->vlan = bpf_ntohs(tag.tci) & 0xfff;
			}
			proto = tag.proto;
			at += sizeof(tag);
		}
	}
	f->ip = proto == bpf_htons(ETH_P_IP) || proto == bpf_htons(ETH_P_IPV6);
	if (proto == bpf_htons(ETH_P_IP))
		gate_read_ipv4(ctx, f, at, len - at);
	else if (f->ip)
		gate_read_ipv6(ctx, f, at, len - at);
	if (!f->header)
		f->head = gate_head_of(f, GATE_PROTO_NONE);
	else
		f->bytes = f->length;
	return 0;
}

/* Ports, flags and type of a packet whose headers can be read; false: gate_read() has to look. */
static __always_inline bool gate_fast_transport(struct gate_facts *f, const __u8 *l4,
						const void *end, __u32 proto, __u32 n)
{
	switch (proto) {
	case IPPROTO_TCP:
		if (n < 14 || (const void *)l4 + 14 > end)
			return false;
		f->sub = l4[13];
		break;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
	case IPPROTO_SCTP:
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if ((proto == IPPROTO_ICMPV6) == f->ipv6)
			f->sub = GATE_SUB_TYPE + l4[0];
		return true;
	default:
		return true;
	}
	f->sport = bpf_ntohs(*(const __be16 *)l4);
	f->dport = bpf_ntohs(*(const __be16 *)(l4 + 2));
	f->ports = true;
	return true;
}

/* What most packets are, into facts that are 0: no tag, no IP options or extension headers, no fragment. Takes 5 ns instead of 60. */
static __always_inline bool gate_read_fast(frame_ctx *ctx, struct gate_facts *f)
{
	struct frame frame = frame_of(ctx);
	const struct ethhdr *eth = frame.data;
	const struct ipv6hdr *ip6 = (const void *)(eth + 1);
	const struct iphdr *ip4 = (const void *)(eth + 1);
	__u32 tci, length;
	bool known;

	if (cfg_features & FEATURE_NO_LINK || frame_tag(ctx, &tci) ||
	    (void *)(ip4 + 1) + sizeof(struct udphdr) > frame.end)
		return false;
	f->sub = GATE_SUB_NONE;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		length = bpf_ntohs(ip4->tot_len);
		if (*(const __u8 *)ip4 != 0x45 || ip4->frag_off & bpf_htons(0x3fff) ||
		    length < sizeof(*ip4) + sizeof(struct udphdr))
			return false;
		gate_set_ipv4(f, ip4);
		known = gate_fast_transport(f, (const void *)(ip4 + 1), frame.end, ip4->protocol,
					    length - sizeof(*ip4));
		f->head = GATE_STATE_IPV4_WHOLE * GATE_PROTOS + ip4->protocol;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6) &&
		   (void *)(ip6 + 1) + sizeof(struct udphdr) <= frame.end) {
		length = bpf_ntohs(ip6->payload_len);
		if (*(const __u8 *)ip6 >> 4 != 6 || length < sizeof(struct udphdr) ||
		    length > 65535 - sizeof(*ip6) || gate_is_extension(ip6->nexthdr))
			return false;
		gate_set_ipv6(f, ip6);
		known = gate_fast_transport(f, (const void *)(ip6 + 1), frame.end, ip6->nexthdr,
					    length);
		length += sizeof(*ip6);
		f->head = GATE_STATE_IPV6_WHOLE * GATE_PROTOS + ip6->nexthdr;
	} else {
		return false;
	}
	f->ip = true;
	f->length = f->bytes = length;
	return known;
}

#endif

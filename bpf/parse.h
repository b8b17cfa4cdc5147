/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From a frame to what flows are made of. Each hook parses once.
 *
 * In: the packet. Out: struct packet, or a reason why it has no flow. Nothing
 * is written to the packet.
 *
 * Every parser gets a cursor that stands on its header, checks its bounds,
 * moves the cursor behind the header and reports what comes next. Two bounds
 * count: `frame.end` is where readable memory ends, `ip_end` where the IP packet
 * ends by its own length. A header beyond ip_end is malformed; a header beyond
 * `frame.end` may be in another buffer, so the caller pulls and tries again.
 */
#ifndef WAYMARK_PARSE_H
#define WAYMARK_PARSE_H

#define VLAN_TAGS_MAX 2

struct cursor {
	struct frame frame;
	void *pos;
	__u32 len; /* of the frame, or of what is parsed of it */
	__u32 ip_end; /* offset from the frame's start where the IP packet ends */
};

/* Words of flow_slot. The ports have the interface above them. */
enum word {
	WORD_SADDR = 0,
	WORD_DADDR = 2,
	WORD_PORTS = 4,
	WORD_META = 5,
	WORD_COUNTS = 6,
	WORD_PAYLOAD = 7
};

/* Above the identity in WORD_META: type of service, time to live, TCP flags. */
#define META_TOS_SHIFT 40

#define SLOT_AT(field, word, byte) (offsetof(struct flow_slot, field) == 8 * (word) + (byte))

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of flow_slot are read so");
_Static_assert(SLOT_AT(saddr, WORD_SADDR, 0) && SLOT_AT(daddr, WORD_DADDR, 0) &&
		       SLOT_AT(sport, WORD_PORTS, 0) && SLOT_AT(dport, WORD_PORTS, 2) &&
		       SLOT_AT(iface, WORD_PORTS, 4) && SLOT_AT(meta, WORD_META, 0) &&
		       SLOT_AT(proto, WORD_META, 4) &&
		       SLOT_AT(tos, WORD_META, META_TOS_SHIFT / 8) &&
		       SLOT_AT(tcp_flags, WORD_META, 7) && SLOT_AT(packets, WORD_COUNTS, 0) &&
		       SLOT_AT(bytes, WORD_COUNTS, 4) && SLOT_AT(payload, WORD_PAYLOAD, 0) &&
		       SLOT_AT(last, WORD_PAYLOAD, 4),
	       "the words of flow_slot hold these fields");

struct vlan_header {
	__be16 tci;
	__be16 proto;
};

/* ICMP and ICMPv6; the identifier is there in echo messages only. */
struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be16 id;
	__be16 sequence;
};

#define ICMP_ECHOREPLY 0
#define ICMP_ECHO 8
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129

static __always_inline __u32 offset_of(const struct cursor *c)
{
	return c->pos - c->frame.data;
}

/* The header of n bytes under the cursor, or NULL when it is not readable. */
#define HEADER(c, type) ((c)->pos + sizeof(type) > (c)->frame.end ? NULL : (type *)(c)->pos)

/* An IPv4 address as the second half of an IPv6 one, whose first half is 0. */
static __always_inline __u64 mapped(__be32 address)
{
	return (__u64)address << 32 | bpf_htonl(0xffff);
}

static __always_inline void set_ipv4(struct packet *p, const struct iphdr *ip)
{
	p->word[WORD_SADDR] = 0;
	p->word[WORD_SADDR + 1] = mapped(ip->saddr);
	p->word[WORD_DADDR] = 0;
	p->word[WORD_DADDR + 1] = mapped(ip->daddr);
}

static __always_inline void set_ipv6(struct packet *p, const struct ipv6hdr *ip)
{
	const __u64 *addr = (const void *)&ip->saddr;

	for (int i = 0; i < 4; i++)
		p->word[WORD_SADDR + i] = addr[i];
}

/* Source and destination port, with which most transport headers begin. */
static __always_inline void set_ports(struct packet *p, const void *header)
{
	*(__u32 *)&p->id.sport = *(const __u32 *)header;
}

/* One condition instead of seven: as a rule all words are equal. */
static __always_inline bool same_flow(const struct flow_slot *a, const struct flow_slot *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4]) |
		 (x[WORD_META] ^ y[WORD_META]) << (64 - META_TOS_SHIFT));
}

/* 1 where both ECN bits are set: "congestion experienced". */
static __always_inline __u32 is_congested(__u32 tos)
{
	__u32 low = tos & 1;

	/* Without a jump, which the compiler would make of it. */
	asm volatile("" : "+r"(low));
	return low & tos >> 1;
}

/* Link header. Out: the network protocol in *proto and id.meta; PARSE_OK or a reason. */
static __always_inline int parse_link(struct cursor *c, struct packet *p, __be16 *proto)
{
	struct vlan_header *tag;
	struct ethhdr *eth;
	__u32 meta = 0, tags = 0, accelerated = 0, tci = 0;

	eth = HEADER(c, struct ethhdr);
	if (!eth)
		return c->len < sizeof(*eth) ? REASON_TRUNCATED : PARSE_PULL;
	c->pos += sizeof(*eth);
	*proto = eth->h_proto;

	if (frame_tag(c->frame.ctx, &tci)) {
		accelerated = 1;
		tags = 1;
		meta = (tci & 0xfff) << META_VLAN_SHIFT;
	}
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		if (*proto != bpf_htons(ETH_P_8021Q) && *proto != bpf_htons(ETH_P_8021AD))
			break;
		if (tags == VLAN_TAGS_MAX)
			return REASON_VLAN_DEPTH;
		tag = HEADER(c, struct vlan_header);
		if (!tag)
			return c->len < offset_of(c) + sizeof(*tag) ? REASON_TRUNCATED : PARSE_PULL;
		c->pos += sizeof(*tag);
		*proto = tag->proto;
		meta |= (bpf_ntohs(tag->tci) & 0xfff)
			<< (tags ? META_INNER_VLAN_SHIFT : META_VLAN_SHIFT);
		tags++;
	}
	if (*proto == bpf_htons(ETH_P_8021Q) || *proto == bpf_htons(ETH_P_8021AD))
		return REASON_VLAN_DEPTH;
	p->id.meta |= meta | (tags ? 2 * tags + accelerated : L2_ETHER) << META_L2_SHIFT;
	return PARSE_OK;
}

static __always_inline int parse_ipv4(struct cursor *c, struct packet *p, __u32 gso, __u8 *next)
{
	__u32 offset = offset_of(c), present = c->len - offset, total, header;
	struct iphdr *ip = HEADER(c, struct iphdr);
	__u16 fragment;

	if (!ip)
		return present < sizeof(*ip) ? REASON_TRUNCATED : PARSE_PULL;
	header = ip->ihl * 4;
	if (ip->version != 4 || header < sizeof(*ip))
		return REASON_MALFORMED;
	total = bpf_ntohs(ip->tot_len);
	if (!total && gso) /* BIG TCP */
		total = present;
	if (total < header || total > present)
		return REASON_MALFORMED;

	set_ipv4(p, ip);
	p->id.tos = ip->tos;
	p->id.ttl = ip->ttl;
	p->l3_offset = offset;
	p->id.bytes = total;
	fragment = bpf_ntohs(ip->frag_off);
	p->frag_id = ip->id;
	p->frag_proto = ip->protocol;
	if (fragment & 0x1fff)
		p->fragment = FRAGMENT_LATER;
	else if (fragment & 0x2000)
		p->fragment = FRAGMENT_FIRST;
	*next = ip->protocol;
	c->ip_end = offset + total;
	c->pos += header;
	return PARSE_OK;
}

static __always_inline int parse_ipv6(struct cursor *c, struct packet *p, __u32 gso, __u8 *next)
{
	__u32 offset = offset_of(c), present = c->len - offset, total, word;
	struct ipv6hdr *ip = HEADER(c, struct ipv6hdr);

	if (!ip)
		return present < sizeof(*ip) ? REASON_TRUNCATED : PARSE_PULL;
	word = bpf_ntohl(*(__be32 *)ip);
	if (word >> 28 != 6)
		return REASON_MALFORMED;
	total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (!ip->payload_len && (gso || ip->nexthdr == IPPROTO_HOPOPTS)) /* jumbogram */
		total = present;
	if (total > present)
		return REASON_MALFORMED;

	set_ipv6(p, ip);
	p->id.meta |= 1 << META_IPV6_SHIFT;
	p->id.tos = word >> 20;
	p->id.ttl = ip->hop_limit;
	p->flow_label = word & 0xfffff;
	p->l3_offset = offset;
	p->id.bytes = total;
	*next = ip->nexthdr;
	c->ip_end = offset + total;
	c->pos += sizeof(*ip);
	return PARSE_OK;
}

static __always_inline int parse_extensions(struct cursor *c, struct packet *p, bool ipv6,
					    __u8 *next)
{
	struct chain chain = {
		.offset = offset_of(c),
		.ip_end = c->ip_end,
		.next = *next,
		.fragment = p->fragment,
		.frag_id = p->frag_id,
		.ipv6 = ipv6,
	};
	int rc;

	if (p->fragment == FRAGMENT_LATER || !is_extension(*next, ipv6))
		return PARSE_OK;
	rc = walk_extensions(c->frame.ctx, &chain);
	if (rc != PARSE_OK)
		return rc;
	p->fragment = chain.fragment;
	p->frag_id = chain.frag_id;
	*next = chain.next;
	if (chain.offset > HEADERS_MAX)
		return REASON_EXT_CHAIN;
	c->pos = c->frame.data + chain.offset;
	return PARSE_OK;
}

/* TCP's header up to the checksum; also what the other protocols share. */
static __always_inline int parse_transport(struct cursor *c, struct packet *p)
{
	__u32 offset = offset_of(c), left = c->ip_end - offset;
	struct tcphdr *tcp;
	struct icmp_header *icmp;
	struct udphdr *udp;
	__u8 *data;
	__u16 word;

	p->l4_offset = offset;
	if (p->fragment == FRAGMENT_LATER)
		return PARSE_OK;

	switch (p->id.proto) {
	case IPPROTO_TCP:
		if (left < sizeof(*tcp))
			return REASON_MALFORMED;
		tcp = HEADER(c, struct tcphdr);
		if (!tcp)
			return PARSE_PULL;
		word = bpf_ntohs(((__be16 *)tcp)[6]);
		p->l4_len = (word >> 12) * 4;
		if (p->l4_len < sizeof(*tcp) || p->l4_len > left)
			return REASON_MALFORMED;
		set_ports(p, tcp);
		p->id.tcp_flags = word;
		p->tcp_flags_high = word >> 8 & 0xf;
		return PARSE_OK;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
		p->l4_len = sizeof(struct udphdr);
		if (left < p->l4_len)
			return REASON_MALFORMED;
		udp = HEADER(c, struct udphdr);
		if (!udp)
			return PARSE_PULL;
		set_ports(p, udp);
		return PARSE_OK;
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
		p->l4_len = 12; /* SCTP common header; DCCP's shortest */
		if (left < p->l4_len)
			return REASON_MALFORMED;
		if (c->pos + 12 > c->frame.end)
			return PARSE_PULL;
		data = c->pos;
		set_ports(p, data);
		if (p->id.proto == IPPROTO_DCCP) {
			p->l4_len = data[4] * 4;
			if (p->l4_len < 12 || p->l4_len > left)
				return REASON_MALFORMED;
		}
		return PARSE_OK;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (left < 4)
			return REASON_MALFORMED;
		p->l4_len = left < sizeof(*icmp) ? left : sizeof(*icmp);
		if (c->pos + 4 > c->frame.end)
			return PARSE_PULL;
		icmp = c->pos;
		p->id.dport = bpf_htons(icmp->type << 8 | icmp->code);
		if (p->id.proto == IPPROTO_ICMP
			    ? icmp->type == ICMP_ECHO || icmp->type == ICMP_ECHOREPLY
			    : icmp->type == ICMPV6_ECHO_REQUEST ||
				      icmp->type == ICMPV6_ECHO_REPLY) {
			if (left < sizeof(*icmp))
				return REASON_MALFORMED;
			icmp = HEADER(c, struct icmp_header);
			if (!icmp)
				return PARSE_PULL;
			p->id.sport = icmp->id;
		}
		return PARSE_OK;
	}
	return PARSE_OK;
}

/* The cursor stands on an IP header whose version is not known yet. */
static __always_inline int parse_ip(struct cursor *c, struct packet *p, __be16 proto)
{
	bool ipv6 = proto == bpf_htons(ETH_P_IPV6);
	__u32 gso = frame_gso_size(c->frame.ctx);
	__u8 next;
	int rc;

	if (ipv6)
		rc = parse_ipv6(c, p, gso, &next);
	else
		rc = parse_ipv4(c, p, gso, &next);
	if (rc != PARSE_OK)
		return rc;
	rc = parse_extensions(c, p, ipv6, &next);
	if (rc != PARSE_OK)
		return rc;
	p->id.proto = next;
	return parse_transport(c, p);
}

#endif

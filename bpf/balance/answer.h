/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Answers to clients: a packet is too big for the way to its backend, or nobody serves them now.
 *
 * Input: a packet to a service. Output: the frame is the answer, from the address of the service: an ICMP or ICMPv6 error
 * that quotes the packet, or a TCP reset. Called by balance.h.
 */
#ifndef WAYMARK_BALANCE_ANSWER_H
#define WAYMARK_BALANCE_ANSWER_H

/* Bytes that are quoted: the longest IPv4 header and 8, for packets that are never shorter; IPv6 and eight; the least. */
#define BALANCE_QUOTE_BIG 128
#define BALANCE_QUOTE4 (sizeof(struct iphdr) + 8)
#define BALANCE_QUOTE6 (sizeof(struct ipv6hdr) + 8)

#define BALANCE_ICMP_BYTES 8

/* Of an ICMP or ICMPv6 error. */
struct balance_icmp {
	__u8 type;
	__u8 code;
	__u16 check;
	__be32 rest;
};

static __always_inline void balance_swap_link(struct ethhdr *to, const struct ethhdr *from)
{
	__builtin_memcpy(to->h_dest, from->h_source, sizeof(to->h_dest));
	__builtin_memcpy(to->h_source, from->h_dest, sizeof(to->h_source));
	to->h_proto = from->h_proto;
}

/* An IP header back to the client. */
static __always_inline void balance_back4(struct iphdr *ip, const struct packet *p, __u32 total,
					  __u8 proto)
{
	const __be32 *from = (const void *)p->id.daddr, *to = (const void *)p->id.saddr;

	ip->version = 4;
	ip->ihl = 5;
	ip->tos = 0;
	ip->tot_len = bpf_htons(total);
	ip->id = 0;
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = BALANCE_TTL;
	ip->protocol = proto;
	ip->check = 0;
	ip->saddr = from[3];
	ip->daddr = to[3];
	ip->check = ~ipv4_sum(ip);
}

static __always_inline void balance_back6(struct ipv6hdr *ip, const struct packet *p, __u32 payload,
					  __u8 proto)
{
	*(__be32 *)ip = bpf_htonl(6U << 28);
	ip->payload_len = bpf_htons(payload);
	ip->nexthdr = proto;
	ip->hop_limit = BALANCE_TTL;
	__builtin_memcpy(&ip->saddr, p->id.daddr, 16);
	__builtin_memcpy(&ip->daddr, p->id.saddr, 16);
}

/* An error that quotes so many bytes, a constant; the frame is cut to them already. */
static __always_inline int balance_quote(frame_ctx *xdp, const struct packet *p, bool ipv6,
					 __u32 quote, const struct balance_icmp *head)
{
	const __u32 header = ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	struct balance_icmp *icmp;
	struct ethhdr *eth;
	struct frame f;
	__u64 sum;

	if (bpf_xdp_adjust_head(xdp, -(int)(header + BALANCE_ICMP_BYTES)))
		return -1;
	f = frame_of(xdp);
	eth = f.data;
	icmp = (void *)(eth + 1) + header;
	if ((void *)(icmp + 1) + quote > f.end)
		return -1;
	balance_swap_link(eth, f.data + header + BALANCE_ICMP_BYTES);
	*icmp = *head;
	sum = (__u32)bpf_csum_diff(NULL, 0, (void *)icmp, BALANCE_ICMP_BYTES + quote, 0);
	if (ipv6)
		sum += port_partial_sum(p, IPPROTO_ICMPV6, BALANCE_ICMP_BYTES + quote);
	icmp->check = ~gate_fold(sum);
	if (ipv6)
		balance_back6((void *)(eth + 1), p, BALANCE_ICMP_BYTES + quote, IPPROTO_ICMPV6);
	else
		balance_back4((void *)(eth + 1), p, header + BALANCE_ICMP_BYTES + quote,
			      IPPROTO_ICMP);
	return 0;
}

static __always_inline int balance_cut(frame_ctx *xdp, __u32 len, __u32 to)
{
	return len == to ? 0 : len < to ? -1 : bpf_xdp_adjust_tail(xdp, (int)to - (int)len);
}

/* An ICMP error: too big for an MTU, or 0: nobody is there. Not 0: the frame is of no use. Verified alone. */
__feature(FEATURE_BALANCE) __noinline
	int balance_complain(frame_ctx *xdp, struct packet *p, __u32 mtu)
{
	struct balance_icmp head = {};
	bool ipv6;

	if (!p)
		return -1;
	ipv6 = p->id.meta >> META_IPV6_SHIFT & 1;
	if (mtu) {
		head.type = ipv6 ? 2 : 3;
		head.code = ipv6 ? 0 : 4;
		head.rest = bpf_htonl(mtu);
		if (balance_cut(xdp, frame_len(xdp), sizeof(struct ethhdr) + BALANCE_QUOTE_BIG))
			return -1;
		return ipv6 ? balance_quote(xdp, p, true, BALANCE_QUOTE_BIG, &head)
			    : balance_quote(xdp, p, false, BALANCE_QUOTE_BIG, &head);
	}
	head.type = ipv6 ? 1 : 3; /* unreachable: the port */
	head.code = ipv6 ? 4 : 3;
	if (balance_cut(xdp, frame_len(xdp),
			sizeof(struct ethhdr) + (ipv6 ? BALANCE_QUOTE6 : BALANCE_QUOTE4)))
		return -1;
	return ipv6 ? balance_quote(xdp, p, true, BALANCE_QUOTE6, &head)
		    : balance_quote(xdp, p, false, BALANCE_QUOTE4, &head);
}

/* The segment that resets a connection, as RFC 9293 3.10.7.1 has it. */
static __always_inline void balance_reset_tcp(struct tcphdr *tcp, const struct packet *p)
{
	__u32 next = bpf_ntohl(tcp->seq) + p->id.payload + tcp->syn + tcp->fin;
	__be32 asked = tcp->ack_seq;
	__be16 port = tcp->source;
	bool answers = tcp->ack;

	tcp->source = tcp->dest;
	tcp->dest = port;
	tcp->seq = answers ? asked : 0;
	tcp->ack_seq = answers ? 0 : bpf_htonl(next);
	((__u8 *)tcp)[12] = sizeof(*tcp) / 4 << 4;
	((__u8 *)tcp)[13] = answers ? BALANCE_RST : BALANCE_RST | BALANCE_ACK;
	tcp->window = 0;
	tcp->urg_ptr = 0;
	tcp->check = 0;
}

/* Not 0: the frame is of no use. Verified alone. */
__feature(FEATURE_BALANCE) __noinline int balance_reset(frame_ctx *xdp, struct packet *p)
{
	struct ethhdr *eth, link;
	struct tcphdr *tcp;
	struct frame f;
	__u32 header;
	__u64 sum;
	bool ipv6;

	if (!p)
		return -1;
	ipv6 = p->id.meta >> META_IPV6_SHIFT & 1;
	header = ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	if (balance_cut(xdp, frame_len(xdp), sizeof(*eth) + header + sizeof(*tcp)))
		return -1;
	f = frame_of(xdp);
	eth = f.data;
	tcp = (void *)(eth + 1) + header;
	if ((void *)(tcp + 1) > f.end)
		return -1;
	link = *eth;
	balance_swap_link(eth, &link);
	balance_reset_tcp(tcp, p);
	sum = (__u32)bpf_csum_diff(NULL, 0, (void *)tcp, sizeof(*tcp), 0);
	tcp->check = ~gate_fold(sum + port_partial_sum(p, IPPROTO_TCP, sizeof(*tcp)));
	if (!ipv6) {
		balance_back4((void *)(eth + 1), p, header + sizeof(*tcp), IPPROTO_TCP);
		return 0;
	}
	if ((void *)(eth + 1) + sizeof(struct ipv6hdr) > f.end)
		return -1;
	balance_back6((void *)(eth + 1), p, sizeof(*tcp), IPPROTO_TCP);
	return 0;
}

#endif

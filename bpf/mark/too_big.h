/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Learns from ICMPv6 Packet Too Big how long packets on a path may be.
 *
 * Input: an ICMPv6 error that arrives. Output: what it quotes, for stages that insert; the flow that a
 * Packet Too Big is about, and the path to its destination, know the MTU. Called at tc ingress.
 *
 * A marked packet that is too long gives the stack no news when the stack's own part of it was not: it would
 * send the next one just as long, and the one that was lost only after a timeout. So the MTU that the message
 * reports becomes what marks leave of it.
 */
#ifndef WAYMARK_MARK_TOO_BIG_H
#define WAYMARK_MARK_TOO_BIG_H

#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PACKET_TOO_BIG 2
#define ICMPV6_PARAM_PROBLEM 4

/* No ICMPv6 error is longer (RFC 4443 section 2.4). */
#define TOO_BIG_MAX IPV6_MTU_MIN

/* The checksum is taken over so many bytes at a time. */
#define SUM_CHUNK 64

/* So far behind the newest byte sent a quoted one may be, where no socket knows. */
#define WINDOW_UNKNOWN (1 << 20)

static __always_inline bool has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_UDPLITE ||
	       proto == IPPROTO_SCTP || proto == IPPROTO_DCCP;
}

/* The type of an ICMPv6 error that quotes a packet, whole; 0: it is none. */
static __always_inline __u8 error_type(const struct packet *p)
{
	__u8 type = bpf_ntohs(p->id.dport) >> 8;

	if (p->id.proto != IPPROTO_ICMPV6 || !(p->id.meta >> META_IPV6_SHIFT & 1) ||
	    p->id.meta >> META_TUNNEL_SHIFT & 7 || p->fragment)
		return 0;
	return type == ICMPV6_DEST_UNREACH || type == ICMPV6_PACKET_TOO_BIG ||
			       type == ICMPV6_PARAM_PROBLEM
		       ? type
		       : 0;
}

/* What a router quotes of the packet that was too big (RFC 4443 section 3.2). */
struct too_big {
	__be32 mtu;
	struct ipv6hdr ip;
};

/* The checksum of the message, as the stack verifies it. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int is_sum_right(struct __sk_buff *skb, const struct packet *p)
{
	__u32 at, len, end;
	__s64 sum;
	struct {
		__u8 saddr[16];
		__u8 daddr[16];
		__be32 len;
		__be32 next;
	} pseudo;
	__u8 chunk[SUM_CHUNK];

	if (!p)
		return false;
	at = p->l4_offset;
	end = p->l3_offset + p->id.bytes;
	len = end - at;
	if (end < at || len > TOO_BIG_MAX)
		return false;
	__builtin_memcpy(pseudo.saddr, p->id.saddr, 16);
	__builtin_memcpy(pseudo.daddr, p->id.daddr, 16);
	pseudo.len = bpf_htonl(len);
	pseudo.next = bpf_htonl(IPPROTO_ICMPV6);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&pseudo, sizeof(pseudo), 0);
#pragma clang loop unroll(disable)
	for (int i = 0; i <= TOO_BIG_MAX / SUM_CHUNK && at < end; i++) {
		/* Bytes beyond the first: Linux 6.1 refuses sizes that may be 0. */
		__u32 more = end - at - 1;

		if (more < SUM_CHUNK - 1)
			__builtin_memset(chunk, 0, sizeof(chunk));
		else
			more = SUM_CHUNK - 1;
		/* One register for the check and the call, as the verifier wants it. */
		asm volatile("" : "+r"(more));
		if (more >= SUM_CHUNK || bpf_skb_load_bytes(skb, at, chunk, more + 1))
			return false;
		sum = bpf_csum_diff(NULL, 0, (__be32 *)chunk, sizeof(chunk), sum);
		at += more + 1;
	}
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

/* The quoted TCP segment is one that is on its way, as the stack asks, too. */
static __noinline int is_in_flight(struct __sk_buff *skb, const struct mark_key *key,
				   const struct mark_guard *g, __u32 seq)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_tcp_sock *tcp;
	struct bpf_sock *sk;
	bool is = false;

	__builtin_memcpy(tuple.ipv6.saddr, key->remote, 16);
	__builtin_memcpy(tuple.ipv6.daddr, key->local, 16);
	tuple.ipv6.sport = key->rport;
	tuple.ipv6.dport = key->lport;
	sk = bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return g->flags & GUARD_TCP && g->sent_end - seq <= WINDOW_UNKNOWN;
	tcp = bpf_tcp_sock(sk);
	if (tcp)
		is = seq - tcp->snd_una <= tcp->snd_nxt - tcp->snd_una;
	bpf_sk_release(sk);
	return is;
}

/* What an error quotes, and which stages know the flow. */
struct mark_quote {
	struct mark_key key;
	__be32 first[2]; /* what follows the extension headers */
	__u32 mtu; /* of a Packet Too Big */
	__u32 marks; /* bytes that stages insert into packets of the flow at most */
	bool whole; /* else the error quotes no flow, and nothing else is set */
	bool extended; /* it has extension headers, of which marks are some */
};

static __always_inline struct mark_quote *quote_of_cpu(void)
{
	return SCRATCH(struct mark_quote, mark_quote);
}

/* The flow that an error quotes. 1, or 0: none. Verified alone, once for all stages. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int quote_read(struct __sk_buff *skb, const struct packet *p)
{
	struct chain chain = { .ipv6 = true };
	struct mark_quote *q = quote_of_cpu();
	struct too_big about;
	__be16 *ports;

	if (!p || !q)
		return 0;
	q->whole = false;
	if (bpf_skb_load_bytes(skb, p->l4_offset + 4, &about, sizeof(about)))
		return 0;
	q->marks = 0;
	q->mtu = bpf_ntohl(about.mtu);
	if (error_type(p) == ICMPV6_PACKET_TOO_BIG &&
	    (q->mtu < IPV6_MTU_MIN || q->mtu >= bpf_ntohs(about.ip.payload_len) + sizeof(about.ip)))
		return 0;
	chain.offset = p->l4_offset + 4 + sizeof(about);
	chain.ip_end = p->l3_offset + p->id.bytes;
	chain.next = about.ip.nexthdr;
	q->extended = is_extension(chain.next, true);
	if (q->extended && walk_extensions(skb, &chain) != PARSE_OK)
		return 0;
	if (bpf_skb_load_bytes(skb, chain.offset, q->first, sizeof(q->first)))
		return 0;
	ports = (__be16 *)q->first;
	__builtin_memcpy(q->key.local, &about.ip.saddr, 16);
	__builtin_memcpy(q->key.remote, &about.ip.daddr, 16);
	q->key.lport = has_ports(chain.next) ? ports[0] : 0;
	q->key.rport = has_ports(chain.next) ? ports[1] : 0;
	if (chain.next == IPPROTO_ICMPV6)
		q->key.lport = ports[2];
	q->key.netns = cfg_netns;
	q->key.proto = chain.next;
	q->whole = true;
	return 1;
}

/*
 * Has a Packet Too Big about a marked packet report what marks leave of it. Its checksum stays as right, or as
 * wrong, as it was: the stack decides whether it believes the message.
 */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int quote_report(struct __sk_buff *skb, const struct packet *p)
{
	struct mark_quote *q = quote_of_cpu();
	__be32 was, is;
	__u32 left;

	if (!p || !q || !q->marks || !q->extended || error_type(p) != ICMPV6_PACKET_TOO_BIG)
		return 0;
	left = q->mtu < IPV6_MTU_MIN + q->marks ? IPV6_MTU_MIN : q->mtu - q->marks;
	was = bpf_htonl(q->mtu);
	is = bpf_htonl(left);
	if (was != is && !bpf_l4_csum_replace(skb, p->l4_offset + 2, was, is, sizeof(is)))
		bpf_skb_store_bytes(skb, p->l4_offset + 4, &is, sizeof(is), 0);
	return 0;
}

/* A flow whose guard follows it learns the MTU, if it did send what is quoted. marks: bytes of a stage. */
static __always_inline void learn_too_big(struct __sk_buff *skb, const struct packet *p,
					  struct mark_guard *g, struct mark_quote *q, __u64 now,
					  __u32 marks)
{
	q->marks += marks;
	if (q->mtu > guard_mtu(g, now))
		return;
	if (q->key.proto == IPPROTO_TCP && !is_in_flight(skb, &q->key, g, bpf_ntohl(q->first[1])))
		return;
	if (is_sum_right(skb, p))
		guard_narrow(g, &q->key, now, q->mtu);
}

#endif

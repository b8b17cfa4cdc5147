/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Learns from ICMPv6 Packet Too Big how long packets on a path may be.
 *
 * Input: a Packet Too Big that arrives. Output: the flow that it is about, and the
 * path to its destination, know the MTU. Called at tc ingress.
 *
 * A marked packet that is too long gives the stack no news when the stack's
 * own part of it was not: it would send the next one just as long.
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

/* The flow that an error quotes: *mtu, of a Packet Too Big, and what follows its extension headers. False: none. */
static __always_inline bool quoted_flow(struct __sk_buff *skb, const struct packet *p,
					struct mark_key *key, __u32 *mtu, __be32 first[2])
{
	struct chain chain = { .ipv6 = true };
	__be16 *ports = (__be16 *)first;
	struct too_big about;

	if (bpf_skb_load_bytes(skb, p->l4_offset + 4, &about, sizeof(about)))
		return false;
	*mtu = bpf_ntohl(about.mtu);
	if (error_type(p) == ICMPV6_PACKET_TOO_BIG &&
	    (*mtu < IPV6_MTU_MIN || *mtu >= bpf_ntohs(about.ip.payload_len) + sizeof(about.ip)))
		return false;
	chain.offset = p->l4_offset + 4 + sizeof(about);
	chain.ip_end = p->l3_offset + p->id.bytes;
	chain.next = about.ip.nexthdr;
	if (is_extension(chain.next, true) && walk_extensions(skb, &chain) != PARSE_OK)
		return false;
	if (bpf_skb_load_bytes(skb, chain.offset, first, 2 * sizeof(*first)))
		return false;
	__builtin_memcpy(key->local, &about.ip.saddr, 16);
	__builtin_memcpy(key->remote, &about.ip.daddr, 16);
	key->lport = has_ports(chain.next) ? ports[0] : 0;
	key->rport = has_ports(chain.next) ? ports[1] : 0;
	if (chain.next == IPPROTO_ICMPV6)
		key->lport = ports[2];
	key->netns = cfg_netns;
	key->proto = chain.next;
	key->kind = MARK_PDM;
	return true;
}

/* A flow whose guard follows it learns the MTU, if it did send what is quoted. */
static __always_inline void learn_too_big(struct __sk_buff *skb, const struct packet *p,
					  struct mark_guard *g, const struct mark_key *key,
					  __u64 now, __u32 mtu, __be32 seq)
{
	if (mtu > guard_mtu(g, now))
		return;
	if (key->proto == IPPROTO_TCP && !is_in_flight(skb, key, g, bpf_ntohl(seq)))
		return;
	if (is_sum_right(skb, p))
		guard_narrow(g, key, now, mtu);
}

#endif

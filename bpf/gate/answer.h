/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The SYN-ACK that answers a SYN, in place of it. Its options are those of the SYN that a cookie can keep; so it is
 * never longer than the SYN, and the frame keeps its length.
 *
 * Input: a SYN and its cookie. Output: the frame is the answer. Called by cookie.h.
 */
#ifndef WAYMARK_GATE_ANSWER_H
#define WAYMARK_GATE_ANSWER_H

#define GATE_TCP_LONGEST 60
#define GATE_ENOENT 2

enum gate_tcp_flag { GATE_FIN = 1, GATE_SYN = 2, GATE_RST = 4, GATE_ACK = 16 };

enum gate_option {
	GATE_OPT_END = 0,
	GATE_OPT_NOP = 1,
	GATE_OPT_MSS = 2,
	GATE_OPT_SCALE = 3,
	GATE_OPT_SACK = 4,
	GATE_OPT_STAMPS = 8,
};

/* Where the kernel keeps options in the lower bits of a timestamp: net/ipv4/syncookies.c. */
enum gate_stamp {
	GATE_STAMP_SCALE = 15, /* 15: none */
	GATE_STAMP_SACK = 1 << 4,
	GATE_STAMP_BITS = 6,
};

/* A SYN that is answered. */
struct gate_answer {
	union {
		struct iphdr ip4;
		struct ipv6hdr ip6;
	};
	union {
		struct tcphdr tcp;
		__u8 bytes[64];
	};
	union {
		struct tcphdr reply;
		__u8 reply_bytes[64];
	};
	struct bpf_sock_tuple tuple;
	__u32 ip_at; /* offset of the IP header */
	__u32 tcp_at;
	__u32 header; /* bytes of the TCP header */
	__u32 data; /* bytes behind it */
	__u32 stamp; /* of the SYN's options */
	__u32 option; /* offset of the one that is read */
	__u16 mss;
	__u8 scale; /* 255: none */
	bool sack;
	bool stamps;
	__u8 zero[3];
};

/* Finds the IP header behind up to two tags. */
static __always_inline int gate_answer_link(frame_ctx *ctx, struct gate_answer *a)
{
	__be16 proto = 0;
	__u32 at = ETH_HLEN;

	a->ip_at = 0;
	if (cfg_features & FEATURE_NO_LINK)
		return 0;
	if (frame_load(ctx, 12, &proto, sizeof(proto)))
		return -1;
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		if (frame_load(ctx, at + 2, &proto, sizeof(proto)))
			return -1;
		at += sizeof(struct vlan_header);
	}
	a->ip_at = at;
	return 0;
}

/* The headers of a segment. Not 0 where there is anything but IP, TCP and data. */
static __always_inline int gate_answer_read(frame_ctx *ctx, const struct gate_facts *f,
					    struct gate_answer *a)
{
	__u32 ip = f->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr), n;

	if (f->fragment || gate_answer_link(ctx, a))
		return -1;
	if (f->ipv6) {
		if (frame_load(ctx, a->ip_at, &a->ip6, sizeof(a->ip6)) ||
		    a->ip6.nexthdr != IPPROTO_TCP)
			return -1;
	} else if (frame_load(ctx, a->ip_at, &a->ip4, sizeof(a->ip4)) || a->ip4.ihl != 5) {
		return -1;
	}
	a->tcp_at = a->ip_at + ip;
	if (frame_load(ctx, a->tcp_at, &a->tcp, sizeof(a->tcp)))
		return -1;
	/* Beyond the least: so Linux 6.1 sees that there is a byte. */
	n = a->tcp.doff * 4 - sizeof(a->tcp);
	barrier_var(n);
	if (n > GATE_TCP_LONGEST - sizeof(a->tcp) || ip + sizeof(a->tcp) + n > f->length ||
	    frame_load(ctx, a->tcp_at, a->bytes, sizeof(a->tcp) + n))
		return -1;
	n += sizeof(a->tcp);
	a->header = n;
	a->data = f->length - ip - n;
	return 0;
}

static __always_inline __u32 gate_load32(const __u8 *p)
{
	return (__u32)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

/*
 * What the options of the SYN offer. Verified alone. The offset is kept in memory: of a register, the verifier would follow
 * each value that it may have, which is most of what it does to load the gate.
 */
__feature(FEATURE_GATE) __noinline int gate_answer_options(struct gate_answer *a)
{
	const __u8 *o;
	__u32 at, len;

	if (!a)
		return 0;
	a->mss = 0;
	a->scale = 255;
	a->sack = a->stamps = false;
	a->option = sizeof(struct tcphdr);
#pragma clang loop unroll(disable)
	for (int i = 0; i < GATE_TCP_LONGEST - sizeof(struct tcphdr); i++) {
		at = WHOLE(a->option);
		if (at + 1 >= a->header || at >= GATE_TCP_LONGEST - 1)
			return 0;
		o = a->bytes + at;
		if (o[0] == GATE_OPT_END)
			return 0;
		if (o[0] == GATE_OPT_NOP) {
			WHOLE(a->option) = at + 1;
			continue;
		}
		len = o[1];
		if (len < 2 || at + len > a->header)
			return 0;
		if (o[0] == GATE_OPT_MSS && len == 4 && at + 4 <= GATE_TCP_LONGEST)
			a->mss = o[2] << 8 | o[3];
		else if (o[0] == GATE_OPT_SCALE && len == 3 && at + 3 <= GATE_TCP_LONGEST)
			a->scale = o[2] < 14 ? o[2] : 14;
		else if (o[0] == GATE_OPT_SACK && len == 2)
			a->sack = true;
		else if (o[0] == GATE_OPT_STAMPS && len == 10 && at + 10 <= GATE_TCP_LONGEST) {
			a->stamps = true;
			a->stamp = gate_load32(o + 2);
		}
		WHOLE(a->option) = at + len;
	}
	return 0;
}

/* The next word of the options. */
static __always_inline void gate_answer_word(struct gate_answer *a, __u32 *at, __u32 word)
{
	__u32 n = *at;

	barrier_var(n);
	if (n <= GATE_TCP_LONGEST - 4)
		*(__be32 *)(a->reply_bytes + n) = bpf_htonl(word);
	*at = n + 4;
}

/* The time, with what the kernel is to know of the options when the cookie returns. */
static __always_inline __u32 gate_answer_stamp(const struct gate_answer *a, bool scales, bool sacks)
{
	__u32 now = bpf_ktime_get_ns() / 1000000;
	__u32 stamp = now >> GATE_STAMP_BITS << GATE_STAMP_BITS;

	stamp |= scales ? a->scale : GATE_STAMP_SCALE;
	if (sacks)
		stamp |= GATE_STAMP_SACK;
	return stamp > now ? stamp - (1 << GATE_STAMP_BITS) : stamp;
}

/* Of what the SYN offers: without timestamps, a cookie keeps the MSS only. */
static __always_inline void gate_answer_write_options(struct gate_answer *a, __u32 mss,
						      __u32 answers)
{
	__u32 at = sizeof(struct tcphdr), scale = answers & GATE_ANSWERS_SCALE;
	bool scales = a->scale != 255 && scale != GATE_ANSWERS_SCALE;
	bool sacks = a->sack && answers & GATE_ANSWERS_SACK;

	if (a->mss)
		gate_answer_word(a, &at, GATE_OPT_MSS << 24 | 4 << 16 | mss);
	if (!a->stamps || !(answers & GATE_ANSWERS_STAMPS))
		return;
	gate_answer_word(
		a, &at,
		(sacks ? GATE_OPT_SACK << 24 | 2 << 16 : GATE_OPT_NOP << 24 | GATE_OPT_NOP << 16) |
			GATE_OPT_STAMPS << 8 | 10);
	gate_answer_word(a, &at, gate_answer_stamp(a, scales, sacks));
	gate_answer_word(a, &at, a->stamp);
	if (scales)
		gate_answer_word(a, &at,
				 GATE_OPT_NOP << 24 | GATE_OPT_SCALE << 16 | 3 << 8 | scale);
}

/* The MSS of this host: that of the interface, and no more than that of the peer, whose path is the same. */
static __always_inline __u32 gate_answer_mss(frame_ctx *ctx, const struct gate_answer *a)
{
	__u32 headers = a->tcp_at - a->ip_at + sizeof(struct tcphdr), mtu = 0;
	__u32 mss = a->mss ?: 536;

	bpf_check_mtu(ctx, 0, &mtu, 0, 0); /* its verdict is about another length */
	if (mtu > headers && mtu - headers < mss)
		mss = mtu - headers;
	return mss;
}

static __always_inline __u16 gate_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* The TCP header of the answer, with the checksum of the SYN. */
static __always_inline void gate_answer_tcp(frame_ctx *ctx, struct gate_answer *a, __u32 cookie,
					    __u32 answers)
{
	__u32 mss = gate_answer_mss(ctx, a), window = 10 * mss;

	__builtin_memset(a->reply_bytes, 0, sizeof(a->reply_bytes));
	a->reply.source = a->tcp.dest;
	a->reply.dest = a->tcp.source;
	a->reply.seq = bpf_htonl(cookie);
	a->reply.ack_seq = bpf_htonl(bpf_ntohl(a->tcp.seq) + 1);
	a->reply.doff = a->tcp.doff;
	a->reply.syn = a->reply.ack = 1;
	a->reply.window = bpf_htons(window < 65535 ? window : 65535);
	a->reply.check = a->tcp.check;
	gate_answer_write_options(a, mss, answers);
}

/* The IP header of the answer, in place of that of the SYN. */
static __always_inline void gate_answer_ip(struct gate_answer *a, bool ipv6)
{
	__be32 other;

	if (ipv6) {
		struct in6_addr from = a->ip6.saddr;

		a->ip6.saddr = a->ip6.daddr;
		a->ip6.daddr = from;
		*(__be32 *)&a->ip6 = bpf_htonl(6U << 28);
		a->ip6.hop_limit = 64;
		return;
	}
	other = a->ip4.saddr;
	a->ip4.saddr = a->ip4.daddr;
	a->ip4.daddr = other;
	a->ip4.tos = 0;
	a->ip4.id = 0;
	a->ip4.frag_off = bpf_htons(0x4000);
	a->ip4.ttl = 64;
	a->ip4.check = 0;
	a->ip4.check =
		~gate_fold((__u32)bpf_csum_diff(NULL, 0, (void *)&a->ip4, sizeof(a->ip4), 0));
}

/* Sum of what TCP's checksum covers besides the segment. */
static __always_inline __u64 gate_answer_pseudo(struct gate_answer *a, bool ipv6, __u32 n)
{
	__u64 sum = bpf_htons(IPPROTO_TCP) + bpf_htons(n);

	if (ipv6)
		return sum + (__u32)bpf_csum_diff(NULL, 0, (void *)&a->ip6.saddr, 32, 0);
	return sum + (__u32)bpf_csum_diff(NULL, 0, (void *)&a->ip4.saddr, 8, 0);
}

/*
 * Writes the TCP header. At XDP the checksum is computed, because that of the SYN may have been left to the device. At tc it
 * is changed by the difference, by a helper that knows who is going to compute it.
 */
static __always_inline int gate_answer_store(frame_ctx *ctx, struct gate_answer *a, bool ipv6,
					     __u32 n)
{
	__u64 sum;

	if (FRAME_WRITABLE) {
		a->reply.check = 0;
		sum = gate_answer_pseudo(a, ipv6, n);
		sum += (__u32)bpf_csum_diff(NULL, 0, (void *)a->reply_bytes, n, 0);
		a->reply.check = ~gate_fold(sum);
		return frame_store(ctx, a->tcp_at, a->reply_bytes, n);
	}
	sum = (__u32)bpf_csum_diff((void *)a->bytes, n, (void *)a->reply_bytes, n, 0);
	return frame_store(ctx, a->tcp_at, a->reply_bytes, n)
		       ?: frame_replace_sum(ctx, a->tcp_at + offsetof(struct tcphdr, check), sum);
}

/* Has the frame be the answer. Not 0 where it cannot be written. Verified alone. */
__feature(FEATURE_GATE) __noinline
	int gate_answer(frame_ctx *ctx, struct gate_answer *a, __u32 cookie, __u32 answers)
{
	__u8 macs[12], swapped[12];
	__u32 n;
	bool ipv6;

	if (!a)
		return -1;
	gate_answer_options(a);
	gate_answer_tcp(ctx, a, cookie, answers);
	ipv6 = a->tcp_at - a->ip_at == sizeof(struct ipv6hdr);
	gate_answer_ip(a, ipv6);
	n = a->header - sizeof(struct tcphdr); /* see gate_answer_read() */
	barrier_var(n);
	if (n > GATE_TCP_LONGEST - sizeof(struct tcphdr))
		return -1;
	n += sizeof(struct tcphdr);
	if (gate_answer_store(ctx, a, ipv6, n) ||
	    frame_store(ctx, a->ip_at, &a->ip6, ipv6 ? sizeof(a->ip6) : sizeof(a->ip4)))
		return -1;
	if (cfg_features & FEATURE_NO_LINK)
		return 0;
	if (frame_load(ctx, 0, macs, sizeof(macs)))
		return -1;
	__builtin_memcpy(swapped, macs + 6, 6);
	__builtin_memcpy(swapped + 6, macs, 6);
	return frame_store(ctx, 0, swapped, sizeof(swapped));
}

#endif

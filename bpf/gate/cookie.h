/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * SYN cookies for protected ports. A SYN to a listener of this host gets the answer that the kernel would give, with
 * the kernel's cookie; the ACK that returns it goes to the kernel, which makes the connection. Packets of sockets pass.
 *
 * Input: a frame that a syncookie rule decides about. Output: GATE_ANSWER, and the frame is the answer; or GATE_PASS or
 * GATE_DROP. Whatever cannot be answered passes. Called by decide.h.
 */
#ifndef WAYMARK_GATE_COOKIE_H
#define WAYMARK_GATE_COOKIE_H

#include "scratch.h"
#include "answer.h"

/* Set by internal/gate, from the kernel's type information. */
const volatile struct gate_sock_offsets cfg_gate_sock = {};

/* Packets, by enum gate_cookie_count. Written by the programs, read by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GATE_COOKIE_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} gate_cookie_counts SEC(".maps");

/* Addresses of this host, written by the agent. Where it is full, SYNs to the others pass and are counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct gate_local_key);
	__type(value, __u8);
} gate_local SEC(".maps");

/* Of net/tcp_states.h, and of include/net/sock.h. */
#define GATE_TCP_LISTEN 10
#define GATE_RCVBUF_LOCK 2

/* Packets without connection or cookie that pass per second, so that the kernel can reset them. */
#define GATE_STRAYS 1000

static __always_inline int gate_cookie_count(__u32 what, const struct gate_facts *f, int verdict)
{
	__u64 *n = bpf_map_lookup_elem(&gate_cookie_counts, &what);

	if (n)
		*n += f->packets;
	return verdict;
}

static __always_inline struct bpf_sock *gate_socket(frame_ctx *ctx, const struct gate_facts *f,
						    struct gate_answer *a)
{
	if (f->ipv6) {
		__builtin_memcpy(a->tuple.ipv6.saddr, &a->ip6.saddr, 16);
		__builtin_memcpy(a->tuple.ipv6.daddr, &a->ip6.daddr, 16);
		a->tuple.ipv6.sport = a->tcp.source;
		a->tuple.ipv6.dport = a->tcp.dest;
		return bpf_skc_lookup_tcp(ctx, &a->tuple, sizeof(a->tuple.ipv6),
					  BPF_F_CURRENT_NETNS, 0);
	}
	a->tuple.ipv4.saddr = a->ip4.saddr;
	a->tuple.ipv4.daddr = a->ip4.daddr;
	a->tuple.ipv4.sport = a->tcp.source;
	a->tuple.ipv4.dport = a->tcp.dest;
	return bpf_skc_lookup_tcp(ctx, &a->tuple, sizeof(a->tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
}

/*
 * Whether the kernel will choose the window scale by the settings of the host: the listener has no buffer size or
 * window of its own. The address of the socket is read back from memory, since the verifier lets us add nothing to it.
 */
static __always_inline bool gate_scales(struct bpf_sock *sk)
{
	struct bpf_sock *pointer = sk;
	__u64 address;
	__u32 clamp;
	__u8 locks;

	return cfg_gate_sock.clamp && !bpf_probe_read_kernel(&address, sizeof(address), &pointer) &&
	       !bpf_probe_read_kernel(&locks, sizeof(locks),
				      (void *)(address + cfg_gate_sock.locks)) &&
	       !bpf_probe_read_kernel(&clamp, sizeof(clamp),
				      (void *)(address + cfg_gate_sock.clamp)) &&
	       !(locks >> cfg_gate_sock.shift & GATE_RCVBUF_LOCK) && !clamp;
}

static __always_inline bool gate_is_local(const struct gate_facts *f)
{
	struct gate_local_key key = {
		.high = f->dst_high,
		.low = f->dst_low,
		.netns = cfg_netns,
		.ipv6 = f->ipv6,
	};

	return bpf_map_lookup_elem(&gate_local, &key) != NULL;
}

/* Nobody is at such a source: none, loopback, multicast, or the destination itself. */
static __always_inline bool gate_is_nobody(const struct gate_facts *f)
{
	__u32 first = f->src_high >> 56;

	if (f->src_high == f->dst_high && f->src_low == f->dst_low)
		return true;
	if (f->ipv6)
		return first == 0xff || (!f->src_high && f->src_low <= 1);
	return !first || first == 127 || first >= 224;
}

/* The socket that listens, and the length of the TCP header. NULL: it was counted why the packet passes. */
static __always_inline struct bpf_sock *gate_listener(frame_ctx *ctx, const struct gate_facts *f,
						      struct gate_answer *a, __u32 *length)
{
	struct bpf_sock *sk = gate_socket(ctx, f, a);
	__u32 n;

	if (!sk) {
		gate_cookie_count(GATE_COOKIE_NO_LISTENER, f, GATE_PASS);
		return NULL;
	}
	if (sk->state != GATE_TCP_LISTEN) {
		bpf_sk_release(sk);
		gate_cookie_count(GATE_COOKIE_SOCKET, f, GATE_PASS);
		return NULL;
	}
	n = a->header - sizeof(struct tcphdr); /* see gate_answer_read() */
	barrier_var(n);
	if (n > GATE_TCP_LONGEST - sizeof(struct tcphdr)) {
		bpf_sk_release(sk);
		gate_cookie_count(GATE_COOKIE_HEADERS, f, GATE_PASS);
		return NULL;
	}
	*length = n + sizeof(struct tcphdr);
	return sk;
}

/* A SYN. */
static __always_inline int gate_cookie_syn(frame_ctx *ctx, const struct gate_facts *f,
					   struct gate_answer *a, __u32 answers)
{
	struct bpf_sock *sk;
	__u32 n, header;
	__s64 cookie;

	if (a->data)
		return gate_cookie_count(GATE_COOKIE_DATA, f, GATE_PASS);
	/* A tag outside of the frame, of which XDP has a hint, would be missing in the answer. */
	if (!(answers & GATE_ANSWERS_SEND) || (FRAME_WRITABLE && f->tagged && a->ip_at <= ETH_HLEN))
		return gate_cookie_count(GATE_COOKIE_CANNOT_SEND, f, GATE_PASS);
	if (gate_is_nobody(f))
		return gate_cookie_count(GATE_COOKIE_SOURCE, f, GATE_PASS);
	if (!gate_is_local(f))
		return gate_cookie_count(GATE_COOKIE_NOT_LOCAL, f, GATE_PASS);
	sk = gate_listener(ctx, f, a, &n);
	if (!sk)
		return GATE_PASS;
	header = f->ipv6 ? sizeof(a->ip6) : sizeof(a->ip4);
	cookie = bpf_tcp_gen_syncookie(sk, &a->ip6, header, &a->tcp, n);
	if (cookie > 0 && !gate_scales(sk))
		answers |= GATE_ANSWERS_SCALE;
	bpf_sk_release(sk);
	if (cookie == -GATE_ENOENT)
		return gate_cookie_count(GATE_COOKIE_QUEUE, f, GATE_PASS);
	if (cookie <= 0)
		return gate_cookie_count(GATE_COOKIE_REFUSED, f, GATE_PASS);
	if (gate_answer(ctx, a, cookie, answers))
		return gate_cookie_count(GATE_COOKIE_CANNOT_SEND, f,
					 GATE_DROP); /* half of it is written */
	return gate_cookie_count(GATE_COOKIE_ANSWERED, f, GATE_ANSWER);
}

/* Any other segment. */
static __always_inline int gate_cookie_rest(frame_ctx *ctx, const struct gate_facts *f,
					    struct gate_answer *a, __u32 slot)
{
	__u32 n, header;
	struct bpf_sock *sk = gate_listener(ctx, f, a, &n);
	__s64 *bucket;
	long valid;

	if (!sk)
		return GATE_PASS;
	header = f->ipv6 ? sizeof(a->ip6) : sizeof(a->ip4);
	valid = bpf_tcp_check_syncookie(sk, &a->ip6, header, &a->tcp, n);
	bpf_sk_release(sk);
	if (!valid)
		return gate_cookie_count(GATE_COOKIE_RETURNED, f, GATE_PASS);
	bucket = bpf_map_lookup_elem(&gate_buckets, &slot);
	if (bucket && gate_take(bucket, bpf_ktime_get_ns(), 1000000000,
				(1000000000 / GATE_STRAYS) * f->packets))
		return gate_cookie_count(GATE_COOKIE_DROPPED, f, GATE_DROP);
	return gate_cookie_count(GATE_COOKIE_STRAY, f, GATE_PASS);
}

static __always_inline int gate_cookie_of(frame_ctx *ctx, const struct gate_facts *f, __u32 slot,
					  __u32 answers)
{
	__u32 flags = f->sub;
	struct gate_answer *a = SCRATCH(struct gate_answer, gate_answer);

	if (!a) /* unreachable; satisfies the verifier */
		return GATE_PASS;
	if (gate_answer_read(ctx, f, a))
		return gate_cookie_count(GATE_COOKIE_HEADERS, f, GATE_PASS);
	if ((flags & (GATE_SYN | GATE_ACK | GATE_RST | GATE_FIN)) == GATE_SYN)
		return gate_cookie_syn(ctx, f, a, answers);
	return gate_cookie_rest(ctx, f, a, slot);
}

/* Verified alone. */
__feature(FEATURE_GATE) __noinline
	int gate_cookie(frame_ctx *ctx, const struct gate_facts *f, __u32 number, __u32 answers)
{
	const struct gate_rule *rule = bpf_map_lookup_elem(&gate_rules, &number);
	int verdict;

	if (!rule || !f)
		return GATE_PASS;
	verdict = gate_cookie_of(ctx, f, rule->slot, answers);
	gate_count(rule->slot, f, verdict == GATE_DROP);
	return verdict;
}

#endif

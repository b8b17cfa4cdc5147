/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Flows of the kernel's flow tables (nftables). Netfilter has let their first packets pass, and has the others pass without it;
 * a flow keeps the translation of addresses that its connection has.
 *
 * Input: a packet at a port where netfilter has rules. Output: whether a flow table has its flow, and addresses and ports as it
 * leaves. Routes are still looked up: the kernel gives up a flow whose route has changed, which only its next packet there
 * shows. Called by forward.h.
 */
#ifndef WAYMARK_FORWARD_OFFLOAD_H
#define WAYMARK_FORWARD_OFFLOAD_H

/* Of the kernel module nf_flow_table, Linux 6.11; a flow that is found does not time out. */
struct bpf_flowtable_opts {
	__s32 error;
};
struct flow_offload_tuple_rhash { /* one direction, of two in a row */
	void *next;
};
extern struct flow_offload_tuple_rhash *bpf_xdp_flow_lookup(struct xdp_md *xdp,
							    struct bpf_fib_lookup *tuple,
							    struct bpf_flowtable_opts *opts,
							    __u32 opts_len) __ksym __weak;

/* Where things are in the kernel's struct flow_offload. Set before loading. */
const volatile struct forward_offload_at cfg_forward_offload = {};

enum forward_offload_bits {
	FORWARD_TUPLE_DIR = 3, /* the second of the two directions */
	FORWARD_XMIT_SHIFT = 2,
	FORWARD_XMIT_MASK = 7,
	FORWARD_XMIT_XFRM = 2, /* FLOW_OFFLOAD_XMIT_XFRM: IPsec */
};

/* Whether only flows of flow tables are forwarded; without the feature, none is. */
static __always_inline bool forward_offloads(const struct forward_view *v)
{
	return cfg_features & FEATURE_OFFLOAD && v->flags & FORWARD_OFFLOADED;
}

/*
 * v->fib says what flow; v->reverse becomes that of the other direction, which has addresses as they are behind the
 * translation. 0: no flow table has it. Verified alone.
 */
__feature(FEATURE_OFFLOAD) __noinline int forward_offloaded(frame_ctx *xdp, struct forward_view *v)
{
	struct bpf_flowtable_opts opts = {};
	struct flow_offload_tuple_rhash *flow;
	const void *reverse;
	__u8 bits;

	if (!v)
		return 0;
	flow = bpf_xdp_flow_lookup(xdp, &v->fib, &opts, sizeof(opts));
	if (!flow)
		return 0;
	if (bpf_probe_read_kernel(&bits, sizeof(bits), (void *)flow + cfg_forward_offload.bits))
		return 0;
	if ((bits >> FORWARD_XMIT_SHIFT & FORWARD_XMIT_MASK) == FORWARD_XMIT_XFRM)
		return 0;
	if (bits & FORWARD_TUPLE_DIR)
		reverse = (void *)flow + cfg_forward_offload.previous;
	else
		reverse = (void *)flow + cfg_forward_offload.next;
	return !bpf_probe_read_kernel(&v->reverse, sizeof(v->reverse), reverse);
}

/* An address of the reverse direction, as in struct flow_slot. */
static __always_inline void forward_reversed(__u8 to[16], const __u8 like[16], const __u8 from[16],
					     bool ipv6)
{
	if (ipv6) {
		__builtin_memcpy(to, from, 16);
		return;
	}
	__builtin_memcpy(to, like, 12);
	__builtin_memcpy(to + 12, from, 4);
}

/* What identifies the packet as it leaves. */
static __always_inline void forward_behind(struct forward_view *v, const struct packet *p)
{
	bool ipv6 = p->id.meta >> META_IPV6_SHIFT & 1;

	forward_reversed(v->behind.saddr, p->id.saddr, v->reverse.dst, ipv6);
	forward_reversed(v->behind.daddr, p->id.daddr, v->reverse.src, ipv6);
	v->behind.sport = v->reverse.dport;
	v->behind.dport = v->reverse.sport;
}

/* Where a plain frame has its transport header. */
static __always_inline __u32 forward_l4(const struct packet *p)
{
	return sizeof(struct ethhdr) +
	       (p->id.meta >> META_IPV6_SHIFT & 1 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

/*
 * Whether flow tables may have the packet's flow, and its transport header can be written. What ends a connection is for the
 * kernel, which then gives up the flow.
 */
static __always_inline bool forward_may_be_offloaded(frame_ctx *xdp, const struct packet *p)
{
	__u32 bytes = forward_l4(p);
	struct frame f = frame_of(xdp);

	if (p->id.proto == IPPROTO_TCP && !(p->id.tcp_flags & (TCP_FIN | TCP_RST)))
		bytes += sizeof(struct tcphdr);
	else if (p->id.proto == IPPROTO_UDP)
		bytes += sizeof(struct udphdr);
	else
		return false;
	return f.data + bytes <= f.end;
}

/* A checksum after what it covers has changed by a sum. */
static __always_inline __u16 forward_summed(__u16 check, __u64 change)
{
	return ~gate_fold((__u16)~check + change);
}

/* Addresses of an IP header. Not 0: it cannot be written. */
static __always_inline int forward_readdress(struct frame f, const struct forward_view *v,
					     bool ipv6, __u64 change)
{
	struct ipv6hdr *ip6 = f.data + sizeof(struct ethhdr);
	struct iphdr *ip = f.data + sizeof(struct ethhdr);

	if (ipv6) {
		if ((void *)(ip6 + 1) > f.end)
			return -1;
		__builtin_memcpy(&ip6->saddr, v->behind.saddr, 16);
		__builtin_memcpy(&ip6->daddr, v->behind.daddr, 16);
		return 0;
	}
	if ((void *)(ip + 1) > f.end)
		return -1;
	__builtin_memcpy(&ip->saddr, v->behind.saddr + 12, 4);
	__builtin_memcpy(&ip->daddr, v->behind.daddr + 12, 4);
	ip->check = forward_summed(ip->check, change);
	return 0;
}

/* Addresses and ports become those behind the translation, of a packet that may be offloaded. Verified alone. */
__feature(FEATURE_OFFLOAD) __noinline
	int forward_translate(frame_ctx *xdp, struct forward_view *v, struct packet *p)
{
	struct frame f = frame_of(xdp);
	__u64 change;
	__u16 *word;
	__u32 l4;

	if (!v || !p)
		return -1;
	change = (__u32)bpf_csum_diff((void *)p->id.saddr, 32, (void *)&v->behind, 32, 0);
	if (forward_readdress(f, v, p->id.meta >> META_IPV6_SHIFT & 1, change))
		return -1;
	l4 = forward_l4(p);
	barrier_var(l4);
	if (l4 > sizeof(struct ethhdr) + sizeof(struct ipv6hdr))
		return -1;
	word = f.data + l4;
	if ((void *)word + sizeof(struct udphdr) > f.end)
		return -1;
	change += (__u64)(__u16)~word[0] + (__u16)~word[1] + v->behind.sport + v->behind.dport;
	word[0] = v->behind.sport;
	word[1] = v->behind.dport;
	if (p->id.proto == IPPROTO_UDP) {
		if (word[3]) /* 0: it has none */
			word[3] = forward_summed(word[3], change) ?: 0xffff;
		return 0;
	}
	if ((void *)word + sizeof(struct tcphdr) > f.end)
		return -1;
	word[8] = forward_summed(word[8], change);
	return 0;
}

#endif

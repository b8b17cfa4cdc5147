/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Forwarding at XDP, by the kernel's tables.
 *
 * Input: a frame that rules let pass, at an interface that forwards. Output: XDP_REDIRECT and the frame as the
 * kernel would send it, to another such interface; or XDP_PASS and the frame as it came. Whatever is not plain
 * forwarding is the kernel's: neighbours, ICMP errors, fragments, options, local delivery.
 * Each packet asks the kernel's tables; nothing is remembered of a route. Called by xdp.bpf.c.
 */
#ifndef WAYMARK_FORWARD_H
#define WAYMARK_FORWARD_H

#include "scratch.h"
#include "config.h"
#include "port.h"
#include "account.h"

enum forward_family { FORWARD_INET = 2, FORWARD_INET6 = 10 };

#define FORWARD_SKIP_NEIGH (1U << 2) /* BPF_FIB_LOOKUP_SKIP_NEIGH, Linux 6.3 */

/* The part of the lookup's parameters that is read from a header, and what else is known then. */
struct forward_view {
	struct bpf_fib_lookup fib;
	struct bpf_fib_lookup back; /* to the source */
	__u32 total; /* bytes of the packet, by its header */
	__u32 place; /* of the interface where it arrived, in forward_ports */
	__u32 len; /* of the frame */
};

/* Neither loopback, nor multicast, nor "this network", which the kernel refuses before it looks for a route. */
static __always_inline bool forward_is_plain4(__be32 address)
{
	__u8 first = *(__u8 *)&address;

	return first && first != 127 && first < 224;
}

/* Neither multicast, link-local, unspecified, loopback, nor an IPv4 address. */
static __always_inline bool forward_is_plain6(const __be32 *address)
{
	__u8 first = *(const __u8 *)address;

	return first < 0xfe && address[0];
}

static __always_inline enum forward_result forward_read_ipv4(const struct iphdr *ip, __u32 present,
							     struct forward_view *v)
{
	v->total = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || ip->ihl < 5 || v->total < sizeof(*ip) || v->total > present)
		return FORWARD_MALFORMED;
	if (ip->ihl > 5)
		return FORWARD_OPTIONS;
	if (ipv4_sum(ip) != 0xffff)
		return FORWARD_MALFORMED;
	if (ip->frag_off & bpf_htons(0x3fff))
		return FORWARD_FRAGMENT;
	if (ip->ttl <= 1)
		return FORWARD_TTL;
	if (!forward_is_plain4(ip->saddr) || !forward_is_plain4(ip->daddr))
		return FORWARD_ADDRESS;
	v->fib.family = FORWARD_INET;
	v->fib.tos = ip->tos;
	v->fib.ipv4_src = ip->saddr;
	v->fib.ipv4_dst = ip->daddr;
	return FORWARD_DONE;
}

static __always_inline enum forward_result forward_read_ipv6(const struct ipv6hdr *ip,
							     __u32 present, struct forward_view *v)
{
	const __be32 *addr = (const void *)&ip->saddr;

	v->total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (ip->version != 6 || v->total > present || v->total > 65535)
		return FORWARD_MALFORMED;
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return FORWARD_FRAGMENT;
	if (is_extension(ip->nexthdr, true))
		return FORWARD_OPTIONS;
	if (ip->hop_limit <= 1)
		return FORWARD_TTL;
	if (!forward_is_plain6(addr) || !forward_is_plain6(addr + 4))
		return FORWARD_ADDRESS;
	v->fib.family = FORWARD_INET6;
	v->fib.flowinfo = *(const __be32 *)ip & bpf_htonl(0x0fffffff);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		v->fib.ipv6_src[i] = addr[i];
		v->fib.ipv6_dst[i] = addr[4 + i];
	}
	return FORWARD_DONE;
}

/* Link and IP header. */
static __always_inline enum forward_result forward_read(frame_ctx *xdp, struct forward_view *v)
{
	const volatile struct forward_port *port = &forward_ports[v->place & (FORWARD_PORTS - 1)];
	struct frame f = frame_of(xdp);
	const struct ethhdr *eth = f.data;
	const void *ip = eth + 1;
	__u32 present = v->len - sizeof(*eth);
	enum forward_result result = port_accepts(xdp, port);

	if (result != FORWARD_DONE)
		return result;
	if (ip + sizeof(struct iphdr) > f.end)
		return FORWARD_NOT_IP;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return forward_read_ipv4(ip, present, v);
	if (eth->h_proto != bpf_htons(ETH_P_IPV6))
		return FORWARD_NOT_IP;
	if (ip + sizeof(struct ipv6hdr) > f.end)
		return FORWARD_MALFORMED;
	return forward_read_ipv6(ip, present, v);
}

/* Protocols by whose ports rules and multipath routes choose. */
static __always_inline bool forward_has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP;
}

/* What flow the packet is of. */
static __always_inline enum forward_result forward_flow(frame_ctx *xdp, struct forward_view *v,
							struct packet *p)
{
	if (!parse_fast(xdp, DIRECTION_INGRESS, cfg_features, p) && port_parse(xdp, p) != PARSE_OK)
		return FORWARD_MALFORMED;
	if (cfg_features & FEATURE_TUNNELS && p->id.meta >> META_TUNNEL_SHIFT & 7)
		return FORWARD_TUNNEL;
	v->fib.l4_protocol = p->id.proto;
	if (forward_has_ports(p->id.proto)) {
		v->fib.sport = p->id.sport;
		v->fib.dport = p->id.dport;
	}
	if (forward_ports[v->place & (FORWARD_PORTS - 1)].flags & FORWARD_VIRTUAL &&
	    !port_is_complete(xdp, p))
		return FORWARD_CHECKSUM;
	return FORWARD_DONE;
}

/*
 * The kernel accepts an IPv4 source if it is not its own, and with rp_filter only if there is a route to it. What this
 * does not show to be so is for the kernel to judge.
 */
static __always_inline bool forward_is_source(frame_ctx *xdp, struct forward_view *v)
{
	v->back.family = FORWARD_INET;
	v->back.tos = v->fib.tos;
	v->back.ifindex = xdp->ingress_ifindex;
	v->back.ipv4_src = v->fib.ipv4_dst;
	v->back.ipv4_dst = v->fib.ipv4_src;
	if (bpf_fib_lookup(xdp, &v->back, sizeof(v->back), FORWARD_SKIP_NEIGH))
		return false;
	return !(forward_ports[v->place & (FORWARD_PORTS - 1)].flags & FORWARD_STRICT) ||
	       v->back.ifindex == xdp->ingress_ifindex;
}

/* Asks the kernel's tables. Its check of the MTU needs the length. */
static __always_inline enum forward_result forward_lookup(frame_ctx *xdp, struct forward_view *v)
{
	long rc;

	v->fib.tot_len = v->total;
	v->fib.ifindex = xdp->ingress_ifindex;
	if (v->fib.family == FORWARD_INET && !forward_is_source(xdp, v))
		return FORWARD_SOURCE;
	rc = bpf_fib_lookup(xdp, &v->fib, sizeof(v->fib), 0);
	if (rc < 0 || rc > FORWARD_NO_SOURCE - FORWARD_BLACKHOLE + 1)
		return FORWARD_LOOKUP;
	return rc ? FORWARD_BLACKHOLE + rc - 1 : FORWARD_DONE;
}

/*
 * Whether the kernel is to see this packet, because it has seen none to this neighbour for a while: only what it sends
 * makes it ask a neighbour that it has not heard of lately whether it is there.
 */
static __always_inline bool forward_is_due(const struct forward_view *v)
{
	__u32 period = (__u32)bpf_jiffies64() >> cfg_forward_shift, n;
	const __u8 *mac = v->fib.dmac;
	__u64 hash;

	hash = (__u64)mac[0] | (__u64)mac[1] << 8 | (__u64)mac[2] << 16 | (__u64)mac[3] << 24 |
	       (__u64)mac[4] << 32 | (__u64)mac[5] << 40;
	hash = mix(hash + ((__u64)v->fib.ifindex << 48) + (__u64)period * 0xbf58476d1ce4e5b9ULL);
	n = hash >> (64 - FORWARD_NEIGHBOUR_BITS);
	if (forward_fresh[n & ((1 << FORWARD_NEIGHBOUR_BITS) - 1)] == period)
		return false;
	forward_fresh[n & ((1 << FORWARD_NEIGHBOUR_BITS) - 1)] = period;
	return true;
}

/* Whether the frame can leave where the route leads. From then on XDP_REDIRECT sends it there. */
static __always_inline enum forward_result forward_leaves(frame_ctx *xdp,
							  const struct forward_view *v)
{
	__u32 place, flags;

	if (v->fib.ifindex == xdp->ingress_ifindex)
		return FORWARD_SAME_INTERFACE; /* the kernel may tell the sender of a better way */
	place = port_place(forward_ports, cfg_iface + v->fib.ifindex);
	if (place >= FORWARD_PORTS)
		return FORWARD_NO_PORT;
	flags = forward_ports[place & (FORWARD_PORTS - 1)].flags;
	if (!(flags & FORWARD_SENDS))
		return FORWARD_NO_PORT;
	if (!(flags & FORWARD_SENDS_PARTS) && v->len > xdp->data_end - xdp->data)
		return FORWARD_PARTS;
	if (forward_is_due(v))
		return FORWARD_REFRESH;
	/* Before anything is changed or counted: the device may be gone. */
	if (bpf_redirect_map(&forward_out, cfg_iface + v->fib.ifindex, XDP_PASS) != XDP_REDIRECT)
		return FORWARD_NO_PORT;
	return FORWARD_DONE;
}

/* As ip_decrease_ttl() of the kernel. */
static __always_inline void forward_age_ipv4(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
}

/* Has the frame be as it leaves. Not 0, and nothing of it is changed but padding: it cannot be written. */
static __always_inline int forward_write(frame_ctx *xdp, const struct forward_view *v)
{
	int padding = v->len - sizeof(struct ethhdr) - v->total;
	struct ethhdr *eth;
	struct frame f;
	void *ip;

	if (padding > 0 && bpf_xdp_adjust_tail(xdp, -padding))
		return -1;
	f = frame_of(xdp);
	eth = f.data;
	ip = eth + 1;
	if (ip + sizeof(struct iphdr) > f.end)
		return -1;
	if (v->fib.family == FORWARD_INET) {
		forward_age_ipv4(ip);
	} else {
		if (ip + sizeof(struct ipv6hdr) > f.end)
			return -1;
		((struct ipv6hdr *)ip)->hop_limit--;
	}
	__builtin_memcpy(eth->h_dest, v->fib.dmac, sizeof(eth->h_dest));
	__builtin_memcpy(eth->h_source, v->fib.smac, sizeof(eth->h_source));
	return 0;
}

static __always_inline void forward_count(__u32 place, enum forward_result result, __u32 bytes)
{
	struct forward_count *c = bpf_map_lookup_elem(&forward_counts, &place);

	if (!c || result >= FORWARD_RESULTS)
		return;
	c->packets[result]++;
	if (result == FORWARD_DONE)
		c->bytes += bytes;
}

/*
 * Whether the agent follows changes, so that what it said of interfaces and of netfilter still holds. With pinned programs, it
 * may be gone.
 */
static __always_inline bool forward_is_stale(void)
{
	__u32 now = bpf_jiffies64(), beat = forward_alive.beat;

	if (forward_alive.seen != beat) {
		forward_alive.tick = now;
		forward_alive.seen = beat;
		return false;
	}
	return (now - forward_alive.tick) >> cfg_forward_shift > 2;
}

/* What becomes of a frame: when it is FORWARD_DONE, the frame is as it leaves, and counted in its flows. */
static __always_inline enum forward_result forward_try(frame_ctx *xdp, struct forward_view *v,
						       bool recorded)
{
	enum forward_result result;
	struct flow_batch *batch;
	struct packet *p;

	if (forward_is_stale())
		return FORWARD_STALE;
	result = forward_read(xdp, v);
	if (result != FORWARD_DONE)
		return result;
	batch = current_batch();
	if (!batch)
		return FORWARD_CPU;
	p = batch_next(batch);
	result = forward_flow(xdp, v, p);
	if (result != FORWARD_DONE)
		return result;
	result = forward_lookup(xdp, v);
	if (result != FORWARD_DONE)
		return result;
	result = forward_leaves(xdp, v);
	if (result != FORWARD_DONE)
		return result;
	if (forward_write(xdp, v))
		return FORWARD_MALFORMED;
	forward_account(xdp, batch, p, cfg_iface + v->fib.ifindex, sizeof(struct ethhdr) + v->total,
			recorded);
	return FORWARD_DONE;
}

/* The verdict of XDP. unrecorded: rules say that there is no record of the packet. Verified alone. */
__feature(FEATURE_FORWARD) __noinline int forward(frame_ctx *xdp, __u32 unrecorded)
{
	struct forward_view *v = SCRATCH(struct forward_view, forward_view);
	enum forward_result result;

	if (cfg_features & FEATURE_NO_LINK || !v)
		return XDP_PASS;
	__builtin_memset(v, 0, sizeof(*v));
	v->place = port_place(forward_ports, iface_of(xdp));
	if (v->place >= FORWARD_PORTS ||
	    !(forward_ports[v->place & (FORWARD_PORTS - 1)].flags & FORWARD_RECEIVES))
		return XDP_PASS;
	v->len = frame_len(xdp);
	result = forward_try(xdp, v, !unrecorded);
	forward_count(v->place, result, v->total);
	return result == FORWARD_DONE ? XDP_REDIRECT : XDP_PASS;
}

#endif

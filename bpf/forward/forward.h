/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Forwarding at XDP, by the kernel's tables.
 *
 * Input: a frame that rules let pass, at an interface that forwards. Output: XDP_REDIRECT and the frame as the
 * kernel would send it, to another such interface; or XDP_PASS and the frame as it came. Whatever is not plain
 * forwarding is the kernel's: neighbours, ICMP errors, fragments, options, local delivery. Ports stand for VLAN
 * interfaces and bridges above them (upper.h).
 * The kernel's tables are asked, once in a while for what packets have in common. Called by xdp.bpf.c.
 */
#ifndef WAYMARK_FORWARD_H
#define WAYMARK_FORWARD_H

#include "scratch.h"
#include "config.h"
#include "port.h"
#include "view.h"
#include "known.h"
#include "upper.h"
#include "read.h"
#include "offload.h"
#include "account.h"

enum forward_family { FORWARD_INET = 2, FORWARD_INET6 = 10 };

#define FORWARD_SKIP_NEIGH (1U << 2) /* BPF_FIB_LOOKUP_SKIP_NEIGH, Linux 6.3 */

/* Protocols by whose ports rules and multipath routes choose. */
static __always_inline bool forward_has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP ||
	       proto == IPPROTO_DCCP || proto == IPPROTO_UDPLITE;
}

/* Of several paths of a route, the kernel chooses for an error the one of the packet that it quotes. */
static __always_inline bool forward_is_error(const struct packet *p)
{
	__u8 type = bpf_ntohs(p->id.dport) >> 8;

	if (p->id.proto == IPPROTO_ICMPV6)
		return type < 128;
	return p->id.proto == IPPROTO_ICMP && type < 32 &&
	       1U << type & (1 << 3 | 1 << 4 | 1 << 5 | 1 << 11 | 1 << 12);
}

/* What flow the packet is of. */
static __always_inline enum forward_result forward_flow(frame_ctx *xdp, struct forward_view *v,
							struct packet *p)
{
	if (!parse_fast(xdp, DIRECTION_INGRESS, cfg_features, p) &&
	    parse(xdp, DIRECTION_INGRESS, p) != PARSE_OK)
		return FORWARD_MALFORMED;
	if (cfg_features & FEATURE_TUNNELS && p->id.meta >> META_TUNNEL_SHIFT & 7)
		return FORWARD_TUNNEL;
	if (forward_is_error(p))
		return FORWARD_ICMP_ERROR;
	if (v->flags & FORWARD_VIRTUAL && !port_is_complete(xdp, p))
		return FORWARD_CHECKSUM;
	return FORWARD_DONE;
}

/* Whether the frame is for its port itself, and routes are looked up there: what is asked is in the identity of the packet. */
static __always_inline bool forward_is_plain(frame_ctx *xdp, const struct forward_view *v)
{
	return v->scope == xdp->ingress_ifindex && !v->in.vid;
}

/*
 * The kernel accepts an IPv4 source if it is not its own, and with rp_filter only if there is a route to it. What this
 * does not show to be so is for the kernel to judge.
 */
static __always_inline bool forward_is_source(frame_ctx *xdp, struct forward_view *v,
					      const struct packet *p, struct forward_known *known)
{
	const __be32 *from = (const void *)p->id.saddr, *to = (const void *)p->id.daddr;
	bool plain = cfg_forward_changes && forward_is_plain(xdp, v);
	__u64 one = (__u64)from[3] << 32 | p->id.iface;
	__u64 other = (__u64)p->id.last << 32 | (__u64)v->generation << 16 |
		      (v->flags & FORWARD_STRICT) << 8 | p->id.tos;
	__u64 *word = forward_source_of(known, p);

	if (plain && v->flags & FORWARD_SOURCES && word[0] == one && word[1] == other)
		return true;
	__builtin_memset(&v->back, 0, sizeof(v->back));
	v->back.family = FORWARD_INET;
	v->back.tos = p->id.tos;
	v->back.ifindex = v->scope;
	v->back.ipv4_src = to[3];
	v->back.ipv4_dst = from[3];
	if (bpf_fib_lookup(xdp, &v->back, sizeof(v->back), FORWARD_SKIP_NEIGH) ||
	    (v->flags & FORWARD_STRICT && v->back.ifindex != v->device))
		return false;
	if (plain) {
		word[0] = one;
		word[1] = other;
	}
	return true;
}

/* What bpf_fib_lookup() is asked. Its check of the MTU needs the length. */
static __always_inline void forward_question(frame_ctx *xdp, struct forward_view *v,
					     const struct packet *p)
{
	const __be32 *from = (const void *)p->id.saddr, *to = (const void *)p->id.daddr;

	__builtin_memset(&v->fib, 0, sizeof(v->fib));
	v->fib.tot_len = v->total;
	v->fib.ifindex = v->scope;
	v->fib.l4_protocol = p->id.proto;
	if (forward_has_ports(p->id.proto)) {
		v->fib.sport = p->id.sport;
		v->fib.dport = p->id.dport;
	}
	if (!(p->id.meta >> META_IPV6_SHIFT & 1)) {
		v->fib.family = FORWARD_INET;
		v->fib.tos = p->id.tos;
		v->fib.ipv4_src = from[3];
		v->fib.ipv4_dst = to[3];
		return;
	}
	v->fib.family = FORWARD_INET6;
	v->fib.flowinfo = bpf_htonl(forward_kind(p));
#pragma unroll
	for (int i = 0; i < 4; i++) {
		v->fib.ipv6_src[i] = from[i];
		v->fib.ipv6_dst[i] = to[i];
	}
}

/* Whether a flow table has the packet's flow; v->fib then asks for the route of it as it leaves. */
static __always_inline bool forward_is_offloaded(frame_ctx *xdp, struct forward_view *v,
						 const struct packet *p)
{
	const __be32 *to = (const void *)v->behind.daddr;

	if (!(cfg_features & FEATURE_OFFLOAD) || !forward_is_plain(xdp, v) ||
	    !forward_may_be_offloaded(xdp, p))
		return false;
	forward_question(xdp, v, p);
	if (!forward_offloaded(xdp, v))
		return false;
	forward_behind(v, p);
	v->fib.dport = v->behind.dport;
	if (v->fib.family == FORWARD_INET)
		v->fib.ipv4_dst = to[3];
	else
		__builtin_memcpy(v->fib.ipv6_dst, v->behind.daddr, 16);
	return true;
}

/*
 * Whether the kernel is to see this packet, because it has seen none to this neighbour for a while: only what it sends
 * makes it ask a neighbour that it has not heard of lately whether it is there.
 */
static __always_inline bool forward_is_due(struct forward_view *v)
{
	__u32 period = (__u32)bpf_jiffies64() >> cfg_forward_shift, n;
	const __u8 *mac = v->fib.dmac;
	__u64 hash;

	hash = (__u64)mac[0] | (__u64)mac[1] << 8 | (__u64)mac[2] << 16 | (__u64)mac[3] << 24 |
	       (__u64)mac[4] << 32 | (__u64)mac[5] << 40;
	hash = mix(hash + ((__u64)v->fib.ifindex << 48) + (__u64)period * 0xbf58476d1ce4e5b9ULL);
	n = hash >> (64 - FORWARD_NEIGHBOUR_BITS);
	if (forward_memory.fresh[n & ((1 << FORWARD_NEIGHBOUR_BITS) - 1)] == period)
		return false;
	if (v->dry) {
		v->dry |= DRY_REFRESH;
		return false;
	}
	forward_memory.fresh[n & ((1 << FORWARD_NEIGHBOUR_BITS) - 1)] = period;
	return true;
}

/* Asks the kernel's tables. */
static __always_inline enum forward_result forward_ask(frame_ctx *xdp, struct forward_view *v,
						       const struct packet *p,
						       struct forward_known *known)
{
	long rc;

	if (v->flags & FORWARD_OFFLOADED) {
		if (!forward_is_offloaded(xdp, v, p))
			return FORWARD_NO_FLOW;
	} else {
		if (!(p->id.meta >> META_IPV6_SHIFT & 1) && !forward_is_source(xdp, v, p, known))
			return FORWARD_SOURCE;
		forward_question(xdp, v, p);
	}
	rc = bpf_fib_lookup(xdp, &v->fib, sizeof(v->fib), 0);
	if (rc < 0 || rc > FORWARD_NO_SOURCE - FORWARD_BLACKHOLE + 1)
		return FORWARD_LOOKUP;
	if (rc)
		return FORWARD_BLACKHOLE + rc - 1;
	if (forward_offloads(v) && v->fib.ifindex != v->reverse.ifindex)
		return FORWARD_NO_FLOW; /* its route has changed, which rules are to judge */
	return v->fib.ifindex == v->device
		       ? FORWARD_SAME_INTERFACE /* the kernel may tell the sender of a better way */
		       : FORWARD_DONE;
}

/* Where the route leads: by a port, which has its link address as a rule; what is not so plain is not remembered. */
static __always_inline enum forward_result forward_find(frame_ctx *xdp, struct forward_view *v,
							const struct packet *p,
							struct forward_known_way **way)
{
	struct forward_known_way *w = *way;
	enum forward_result result;
	__u32 place;

	v->out = cfg_iface + v->fib.ifindex;
	place = port_place(forward_memory.ports, v->out);
	if (place >= FORWARD_PORTS) {
		result = forward_departs(v);
		if (result != FORWARD_DONE)
			return result;
		place = port_place(forward_memory.ports, v->out);
		if (place >= FORWARD_PORTS)
			return FORWARD_NO_PORT;
		w = &v->way;
	} else if (forward_offloads(v) || !forward_is_plain(xdp, v) ||
		   !port_is_mac(forward_memory.ports[place & (FORWARD_PORTS - 1)].mac,
				v->fib.smac)) {
		w = &v->way;
	}
#pragma unroll
	for (int i = 0; i < 5; i++)
		((__u64 *)w)[i] = p->word[i];
	w->kind = forward_asked(p, v->flags);
	w->ifindex = v->out - cfg_iface;
	w->mtu = v->fib.mtu_result;
	w->proto = p->id.proto;
	w->place = place;
	port_copy_mac(w->mac, v->fib.dmac);
	w->generation = v->generation;
	w->tick = p->id.last;
	*way = w;
	return FORWARD_DONE;
}

/* Whether the frame can leave that way. From then on XDP_REDIRECT sends it there. */
static __always_inline enum forward_result forward_leaves(frame_ctx *xdp, struct forward_view *v,
							  const struct forward_known_way *w,
							  bool asked)
{
	const volatile struct forward_port *port =
		&forward_memory.ports[w->place & (FORWARD_PORTS - 1)];
	__u32 flags = port->flags, iface = cfg_iface + w->ifindex;

	if (!(flags & FORWARD_SENDS) || port->iface != iface)
		return FORWARD_NO_PORT;
	if (!(flags & FORWARD_SENDS_PARTS) && v->len > xdp->data_end - xdp->data)
		return FORWARD_PARTS;
	if (asked && forward_is_due(v))
		return FORWARD_REFRESH;
	/* Before anything is changed or counted: the device may be gone. */
	if (bpf_redirect_map(&forward_out, iface, XDP_PASS) != XDP_REDIRECT)
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
static __always_inline int forward_write(frame_ctx *xdp, struct forward_view *v,
					 const struct forward_known_way *w, bool ipv6)
{
	int padding = v->len - v->link - v->total;
	__u32 link = sizeof(struct ethhdr);
	struct ethhdr *eth;
	struct frame f;
	void *ip;

	if (padding > 0 && bpf_xdp_adjust_tail(xdp, -padding))
		return -1;
	if (v->link > sizeof(*eth) || v->leaves.vid) {
		if (forward_retag(xdp, v))
			return -1;
		if (v->leaves.vid)
			link = FORWARD_TAGGED;
	}
	barrier_var(link);
	f = frame_of(xdp);
	eth = f.data;
	ip = f.data + link;
	if (link > FORWARD_TAGGED || ip + sizeof(struct iphdr) > f.end || (void *)(eth + 1) > f.end)
		return -1;
	if (!ipv6) {
		forward_age_ipv4(ip);
	} else {
		if (ip + sizeof(struct ipv6hdr) > f.end)
			return -1;
		((struct ipv6hdr *)ip)->hop_limit--;
	}
	port_copy_mac(eth->h_dest, w->mac);
	if (w == &v->way)
		port_copy_mac(eth->h_source, v->fib.smac);
	else
		port_copy_mac(
			eth->h_source,
			(const void *)forward_memory.ports[w->place & (FORWARD_PORTS - 1)].mac);
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
static __always_inline bool forward_is_stale(const struct forward_view *v)
{
	__u32 now = bpf_jiffies64(), beat = forward_memory.beat;

	if (forward_memory.seen != beat) {
		if (v->dry)
			return false;
		forward_memory.tick = now;
		forward_memory.seen = beat;
		return false;
	}
	return (now - forward_memory.tick) >> cfg_forward_shift > 2;
}

/* What becomes of a frame: when it is FORWARD_DONE, the frame is as it leaves, and counted in its flows. */
static __always_inline enum forward_result forward_try(frame_ctx *xdp, struct forward_view *v,
						       bool recorded)
{
	struct forward_known *known;
	enum forward_result result;
	struct flow_batch *batch;
	struct forward_known_way *w;
	struct packet *p;
	bool asked;

	if (forward_is_stale(v))
		return FORWARD_STALE;
	result = forward_read(xdp, v);
	if (result != FORWARD_DONE)
		return result;
	batch = current_batch();
	known = forward_known_here();
	if (!batch || !known)
		return FORWARD_CPU;
	p = batch_next(batch);
	result = forward_flow(xdp, v, p);
	if (result != FORWARD_DONE)
		return result;
	p->hash = hash_flow(&p->id);
	w = forward_known_way_of(known, p);
	/* Before the kernel is asked: what changes meanwhile is not remembered as if it had been there. */
	v->generation = forward_generation(xdp, p->id.meta >> META_IPV6_SHIFT & 1);
	asked = v->dry || v->flags & FORWARD_OFFLOADED || !cfg_forward_changes ||
		!forward_is_plain(xdp, v) || !forward_is_known(w, p, v->flags, v->generation);
	if (asked) {
		result = forward_ask(xdp, v, p, known);
		if (result != FORWARD_DONE)
			return result;
		result = forward_find(xdp, v, p, &w);
		if (result != FORWARD_DONE)
			return result;
	}
	result = forward_leaves(xdp, v, w, asked);
	if (result != FORWARD_DONE)
		return result;
	if (forward_write(xdp, v, w, p->id.meta >> META_IPV6_SHIFT & 1))
		return FORWARD_MALFORMED;
	if (forward_offloads(v) && forward_translate(xdp, v, p))
		return FORWARD_MALFORMED; /* unreachable: it was asked before whether it can be written */
	if (v->dry)
		return FORWARD_DONE;
	if (forward_offloads(v))
		forward_account_offloaded(xdp, v, batch, p, w->ifindex, recorded);
	else if (v->in.vid || v->leaves.vid)
		forward_account_tagged(xdp, v, p, recorded);
	else
		forward_account(xdp, batch, p, w->ifindex, 1, sizeof(struct ethhdr) + v->total,
				recorded);
	return FORWARD_DONE;
}

/* The note of a dry run. The kernel has put the next hop in place of the destination. */
static __always_inline void forward_note(frame_ctx *xdp, const struct forward_view *v,
					 enum forward_result result)
{
	struct dry_note *note = frame_dry_note(xdp);
	__u32 *hop;

	if (!note)
		return;
	note->forward = (1 + result) | (v->dry & DRY_REFRESH);
	note->mtu = v->fib.mtu_result;
	note->out = result == FORWARD_DONE ? v->out - cfg_iface : v->fib.ifindex;
	hop = (__u32 *)note->next_hop;
	hop[0] = v->fib.ipv6_dst[0];
	hop[1] = v->fib.ipv6_dst[1];
	hop[2] = v->fib.ipv6_dst[2];
	hop[3] = v->fib.ipv6_dst[3];
	if (v->fib.family == FORWARD_INET) {
		hop[0] = hop[1] = 0;
		hop[2] = bpf_htonl(0xffff);
		hop[3] = v->fib.ipv4_dst;
	}
}

/* The verdict of XDP. flags: enum run_flag. Verified alone. */
__feature(FEATURE_FORWARD) __noinline int forward(frame_ctx *xdp, __u32 flags)
{
	struct forward_view *v = SCRATCH(struct forward_view, forward_view);
	enum forward_result result;

	if (cfg_features & FEATURE_NO_LINK || !v)
		return XDP_PASS;
	v->total = 0;
	v->in = v->leaves = (struct forward_tag){};
	v->place = port_place(forward_memory.ports, iface_of(xdp));
	if (v->place >= FORWARD_PORTS)
		return XDP_PASS;
	v->flags = forward_memory.ports[v->place & (FORWARD_PORTS - 1)].flags;
	if (!(v->flags & FORWARD_RECEIVES))
		return XDP_PASS;
	v->len = frame_len(xdp);
	v->dry = flags & RUN_DRY;
	result = forward_try(xdp, v, !(flags & RUN_UNRECORDED));
	if (v->dry) {
		forward_note(xdp, v, result);
		return XDP_DROP;
	}
	forward_count(v->place, result, v->total);
	return result == FORWARD_DONE ? XDP_REDIRECT : XDP_PASS;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Inserts options behind an outer IPv6 header (ip6ip6, RFC 2473), so that the packet itself, which
 * may be one that is forwarded, does not change.
 *
 * Input: a parsed packet and the insertion that its policy names. Output: the packet behind the outer
 * header, with flow label, traffic class and ECN copied, and struct packet as if that had been there
 * always; or the packet as it was, and a reason counted. Called by insert.h, after PDM. The other end
 * is tunnel.h.
 *
 * The end of the tunnel may be gone, or a link in between narrower than is known, and neither is reported to the sender.
 * So flows are followed as those whose packets change (bpf/mark), forwarded ones, too: what TCP sends again goes
 * without the outer header. Others go into the tunnel only while its end answers, as long as what it answered (echo.h).
 *
 * The packet leaves by the interface and to the neighbor of its own route, so these must be those of
 * the route to the end of the tunnel.
 */
#ifndef WAYMARK_IOAM_WRAP_H
#define WAYMARK_IOAM_WRAP_H

#define IOAM_OUTER_HOPS 64
#define IOAM_WRAP (BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

/* Results of ioam_wrap_route() besides enum mark_reason. */
#define IOAM_OTHER_ROUTE (-2)

/* MARK_OK and the MTU towards the end of the tunnel, or a reason. */
static __always_inline int ioam_wrap_route(struct __sk_buff *skb, const struct ioam_insertion *in,
					   __u32 *mtu)
{
	struct bpf_fib_lookup fib = { .family = AF_INET6, .ifindex = skb->ifindex, .tot_len = 1 };
	__u8 neighbor[ETH_ALEN];
	long rc;

	if (bpf_check_mtu(skb, 0, mtu, 0, 0) < 0)
		return MARK_MTU;
	__builtin_memcpy(fib.ipv6_src, in->source, sizeof(fib.ipv6_src));
	__builtin_memcpy(fib.ipv6_dst, in->destination, sizeof(fib.ipv6_dst));
	rc = bpf_fib_lookup(skb, &fib, sizeof(fib), BPF_FIB_LOOKUP_OUTPUT);
	if (rc == BPF_FIB_LKUP_RET_FWD_DISABLED) /* not forwarding: the kernel does not answer */
		return MARK_OK;
	if ((rc != BPF_FIB_LKUP_RET_SUCCESS && rc != BPF_FIB_LKUP_RET_NO_NEIGH) ||
	    fib.ifindex != skb->ifindex)
		return IOAM_OTHER_ROUTE;
	if (rc == BPF_FIB_LKUP_RET_SUCCESS && !(cfg_features & FEATURE_NO_LINK)) {
		if (bpf_skb_load_bytes(skb, 0, neighbor, sizeof(neighbor)))
			return MARK_CHAIN;
		for (int i = 0; i < ETH_ALEN; i++) {
			if (neighbor[i] != fib.dmac[i])
				return IOAM_OTHER_ROUTE;
		}
	}
	if (fib.mtu_result && fib.mtu_result < *mtu)
		*mtu = fib.mtu_result;
	return MARK_OK;
}

/* Whether a segment of TCP may be so long, for all that is known of the tunnel. */
static __always_inline int ioam_wrap_fit_tcp(struct __sk_buff *skb, struct mark_segment *seg,
					     const struct mark_guard *g, __u32 mtu, __u64 now)
{
	__u32 want = seg->len + seg->mark, most = guard_mtu(g, now);
	int reason = MARK_PATH_MTU;

	if (mtu <= most) {
		most = mtu;
		reason = MARK_MTU;
	}
	most -= seg->later;
	if (want <= most) {
		seg->len = want;
		return MARK_OK;
	}
	if (!skb->gso_size || seg->len > most || skb->gso_size <= seg->mark)
		return reason;
	seg->flags = IOAM_WRAP; /* segments become shorter */
	return MARK_OK;
}

/* Flags for bpf_skb_adjust_room(), or why the packet cannot grow. */
static __always_inline int ioam_wrap_fit(struct __sk_buff *skb, const struct packet *p,
					 const struct ioam_insertion *in, struct ioam_plan *plan,
					 struct mark_guard *g, __u32 mtu, __u64 now)
{
	struct mark_segment *seg = &plan->segment;
	__u32 want;

	seg->flags = IOAM_WRAP | BPF_F_ADJ_ROOM_FIXED_GSO;
	seg->len = p->id.bytes;
	if (skb->gso_size) {
		/* Others than TCP keep their length. Their checksum may be at a place that moves. */
		if (!seg->tcp && p->id.proto != IPPROTO_UDP)
			return MARK_BURST_TUNNEL;
		if (!seg->tcp && !is_checksum_partial(skb, p->l4_offset + 6))
			return MARK_BURST_CHECKSUM;
		seg->len = p->l4_offset - p->l3_offset + p->l4_len + skb->gso_size;
		if (space_bursts(skb, seg->mark))
			return MARK_TOO_LONG;
	}
	if (seg->tcp && g)
		return ioam_wrap_fit_tcp(skb, seg, g, mtu, now);
	want = seg->len + seg->mark + seg->later;
	if (want > mtu)
		return MARK_MTU;
	return plan->asks || want <= ioam_longest(in) ? MARK_OK : MARK_UNPROVEN;
}

/* Makes space and writes the outer headers. */
static __always_inline int ioam_wrap_now(struct __sk_buff *skb, struct ioam_work *w,
					 const struct ioam_insertion *in, __u64 flags)
{
	__u32 l3 = w->l3, hop = in->bytes[IOAM_HOP_NEW], dest = in->bytes[IOAM_DEST_NEW];
	__u8 inner_proto = IPPROTO_IPV6, dest_proto = IPPROTO_DSTOPTS;
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, l3, &ip, sizeof(ip)))
		return MARK_CHAIN;
	if (!ip.payload_len)
		return MARK_JUMBOGRAM;
	if (bpf_ntohs(ip.payload_len) + 2 * sizeof(ip) + hop + dest > 0xffff)
		return MARK_TOO_LONG;
	if (space_grow(skb, sizeof(ip) + hop + dest, BPF_ADJ_ROOM_MAC, flags))
		return MARK_NO_SPACE;
	ip.payload_len = bpf_htons(bpf_ntohs(ip.payload_len) + sizeof(ip) + hop + dest);
	ip.nexthdr = hop ? IPPROTO_HOPOPTS : IPPROTO_DSTOPTS;
	ip.hop_limit = IOAM_OUTER_HOPS;
	__builtin_memcpy(&ip.saddr, in->source, sizeof(ip.saddr));
	__builtin_memcpy(&ip.daddr, in->destination, sizeof(ip.daddr));
	if (bpf_skb_store_bytes(skb, l3, &ip, sizeof(ip), 0))
		return MARK_BROKEN;
	l3 += sizeof(ip);
	if (hop && (ioam_write(skb, w, in, IOAM_HOP_NEW, l3) ||
		    bpf_skb_store_bytes(skb, l3, dest ? &dest_proto : &inner_proto, 1, 0)))
		return MARK_BROKEN;
	l3 += hop;
	if (dest && (ioam_write(skb, w, in, IOAM_DEST_NEW, l3) ||
		     bpf_skb_store_bytes(skb, l3, &inner_proto, 1, 0)))
		return MARK_BROKEN;
	return MARK_OK;
}

/*
 * MARK_OK and how long packets to the end of the tunnel may be, at most the MTU that the route has; or
 * MARK_FALLBACK.
 */
static __always_inline int ioam_wrap_path(const struct ioam_insertion *in, struct mark_key *key,
					  __u32 *mtu, __u64 now, bool asks)
{
	struct mark_path *path;

	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memcpy(key->remote, in->destination, sizeof(key->remote));
	key->netns = cfg_netns;
	path = path_make(key, PATH_LENGTHS);
	if (!path)
		return MARK_OK;
	if (is_recent(path->narrowed, now, PATH_LIFETIME) && path->mtu < *mtu)
		*mtu = path->mtu;
	/* A question to the end goes: only so it is known that it is there again. */
	return now < path->closed && !asks && !ioam_answered_since(in, path->closed - FALLBACK_NS)
		       ? MARK_FALLBACK
		       : MARK_OK;
}

/*
 * Learns from an ICMPv6 error about an outer header. The stack does not: it has no such tunnel. Where
 * nothing takes packets out of the tunnel, all would be lost, and only TCP shows that otherwise.
 */
static __always_inline void ioam_wrap_error(struct __sk_buff *skb, const struct packet *p,
					    const struct mark_key *key, __u32 mtu, __u64 now)
{
	struct mark_path_key at;
	struct mark_path *path = path_of(key, PATH_LENGTHS, &at);
	bool too_big = error_type(p) == ICMPV6_PACKET_TOO_BIG;

	/* Known only of tunnels and flows of this host. */
	if (!path)
		return;
	if (too_big ? is_recent(path->narrowed, now, PATH_LIFETIME) && path->mtu <= mtu
		    : now < path->closed && is_recent(path->closed - FALLBACK_NS, now, CHECK_NS))
		return;
	if (!is_sum_right(skb, p))
		return;
	if (too_big) {
		path->mtu = mtu;
		path->narrowed = now;
		MARK_STAT_ADD(MARK_IOAM_OUTER, narrowed, 1);
	} else {
		path->closed = now + FALLBACK_NS;
		MARK_STAT_ADD(MARK_IOAM_OUTER, blocked, 1);
	}
}

/* What may be done with the packet: MARK_OK and plan->segment, or a reason. */
static __always_inline int ioam_may_wrap(struct __sk_buff *skb, const struct packet *p,
					 const struct ioam_insertion *in, struct ioam_plan *plan,
					 struct mark_guard *g, __u64 now)
{
	__u32 mtu = 0;
	int rc = ioam_wrap_route(skb, in, &mtu);

	if (rc != MARK_OK)
		return rc;
	rc = ioam_wrap_path(in, &plan->outer, &mtu, now, plan->asks);
	if (rc == MARK_OK)
		rc = ioam_wrap_fit(skb, p, in, plan, g, mtu, now);
	/* As it is, it can show that such packets arrive. */
	if (rc != MARK_OK && g && plan->segment.tcp && plan->segment.len <= 0xffff)
		guard_sent(g, &plan->segment, false, now);
	return rc;
}

/* TC_ACT_UNSPEC, or TC_ACT_SHOT for a packet that could not be finished. */
__feature(FEATURE_IOAM) __noinline
	int ioam_wrap(struct __sk_buff *skb, struct packet *p, __u32 index)
{
	struct ioam_insertion *in = bpf_map_lookup_elem(&ioam_insertions, &index);
	struct ioam_plan *plan = ioam_plan_of_cpu();
	struct mark_guard *g;
	struct ioam_work *w;
	__u64 now = mark_now();
	__u32 bytes;
	int rc;

	w = IOAM_CPU(struct ioam_work, work);
	if (!p || !w || !in || !plan)
		return TC_ACT_UNSPEC;
	bytes = sizeof(struct ipv6hdr) + in->bytes[IOAM_HOP_NEW] + in->bytes[IOAM_DEST_NEW];
	plan->segment.mark = bytes;
	plan->segment.later = in->grows;
	g = bpf_map_lookup_elem(&ioam_guards, &plan->key);
	rc = ioam_may_wrap(skb, p, in, plan, g, now);
	if (rc == MARK_OK)
		rc = ioam_wrap_now(skb, w, in, plan->segment.flags);
	if (rc != MARK_OK) {
		ioam_count(skb, DIRECTION_EGRESS,
			   rc == IOAM_OTHER_ROUTE ? IOAM_TUNNEL_ROUTE : IOAM_REFUSED + rc,
			   in->space);
		return rc == MARK_BROKEN || plan->asks ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	}
	if (g)
		ioam_note_inserted(p, plan, g, now);
	account_mark(skb, p, bytes);
	if (!plan->asks)
		ioam_inserted(in, p);
	return TC_ACT_UNSPEC;
}

#endif

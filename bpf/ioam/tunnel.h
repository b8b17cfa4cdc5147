/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The outer IPv6 header of a tunnel (ip6ip6, RFC 2473) that only carries options.
 *
 * Input: at tc ingress, a packet whose options end here, and which another IPv6 header follows; it is
 * for this host. Output: the inner packet, and a verdict. The inner hop limit and everything else of
 * it stays as it came, but for ECN.
 */
#ifndef WAYMARK_IOAM_TUNNEL_H
#define WAYMARK_IOAM_TUNNEL_H

#define IOAM_ECN 3
#define IOAM_ECT1 1
#define IOAM_ECT0 2
#define IOAM_CE 3
#define IOAM_ECN_SHIFT 4 /* in the second byte of an IPv6 header */

/* Results of ioam_ecn() besides a codepoint. */
#define IOAM_ECN_DROP (-1)

/* What the inner packet leaves the tunnel with (RFC 6040 section 4.2). */
static __always_inline int ioam_ecn(__u8 outer, __u8 inner)
{
	if (outer == IOAM_CE)
		return inner ? IOAM_CE : IOAM_ECN_DROP;
	if (outer == IOAM_ECT1 && inner == IOAM_ECT0)
		return IOAM_ECT1;
	return inner;
}

/* Whether the kernel would not forward a packet to its destination: it is this host's. */
static __always_inline bool ioam_is_local(struct __sk_buff *skb, const struct ipv6hdr *ip)
{
	struct bpf_fib_lookup fib = { .family = AF_INET6, .ifindex = skb->ifindex };
	long rc;

	if (ip->daddr.s6_addr[0] == 0xff)
		return false;
	__builtin_memcpy(fib.ipv6_src, &ip->saddr, sizeof(fib.ipv6_src));
	__builtin_memcpy(fib.ipv6_dst, &ip->daddr, sizeof(fib.ipv6_dst));
	rc = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	return rc == BPF_FIB_LKUP_RET_NOT_FWDED || rc == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Whether an address may send outer headers that are removed here. */
static __always_inline bool ioam_is_end(const struct ioam_work *w, const __u64 *from)
{
	const volatile struct ioam_node *node = &ioam.node[w->copy & 1];

	if (!node->ends)
		return true;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < IOAM_ENDS; i++) {
		const volatile struct ioam_prefix *p = &node->end[i];

		if (i < node->ends && (from[0] & p->mask[0]) == p->address[0] &&
		    (from[1] & p->mask[1]) == p->address[1])
			return true;
	}
	return false;
}

/* c: the outer headers. IOAM_UNWRAPPED; IOAM_PASS: it is not a tunnel's; or a reason. */
__feature(FEATURE_IOAM) __noinline
	int ioam_unwrap(struct __sk_buff *skb, struct ioam_work *w, struct ioam_cut *c)
{
	struct ipv6hdr outer __attribute__((aligned(8))), inner;
	__u8 *to_ecn = (__u8 *)&inner + 1;
	__u32 bytes;
	int ecn;

	if (!w || !c || c->chain.next != IPPROTO_IPV6 || c->chain.fragment || c->fixed)
		return IOAM_PASS;
	bytes = c->chain.offset - w->l3;
	if (skb->pkt_type != PACKET_HOST || space_framed(skb, w->l3) != SPACE_OK ||
	    bpf_skb_load_bytes(skb, w->l3, &outer, sizeof(outer)) ||
	    bpf_skb_load_bytes(skb, c->chain.offset, &inner, sizeof(inner)) || inner.version != 6 ||
	    !ioam_is_local(skb, &outer))
		return IOAM_PASS;
	if (!ioam_is_end(w, (const __u64 *)&outer.saddr)) {
		ioam_count(skb, DIRECTION_INGRESS, IOAM_TUNNEL_FROM, c->space);
		return IOAM_PASS;
	}
	ecn = ioam_ecn(((__u8 *)&outer)[1] >> IOAM_ECN_SHIFT & IOAM_ECN,
		       *to_ecn >> IOAM_ECN_SHIFT & IOAM_ECN);
	if (ecn == IOAM_ECN_DROP)
		return IOAM_CONGESTION;
	*to_ecn = (*to_ecn & ~(IOAM_ECN << IOAM_ECN_SHIFT)) | ecn << IOAM_ECN_SHIFT;
	if (bpf_skb_pull_data(skb, c->chain.offset + sizeof(inner)) ||
	    bpf_skb_adjust_room(skb, -(__s32)bytes, BPF_ADJ_ROOM_MAC, SPACE_SHRINK))
		return IOAM_NOT_REMOVED;
	return space_put(skb, w->l3 + 1, to_ecn, 1) ? IOAM_UNWRAPPED : IOAM_BROKEN;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which packets may grow by options at all, and where these go.
 *
 * Input: a parsed packet. Output: MARK_OK and the place in front of its upper layer, or a reason.
 * The packet as it was counted is corrected for what was inserted, so that records report what is on
 * the wire. Called at tc egress, by stages that insert.
 */
#ifndef WAYMARK_MARK_MAY_H
#define WAYMARK_MARK_MAY_H

#define ICMPV6_INFORMATION 128 /* types below are errors */

#define LOOPBACK_IFINDEX 1 /* in every network namespace */

/* MARK_OK or a reason. */
static __always_inline int mark_reason_of(enum space_result rc)
{
	switch (rc) {
	case SPACE_OK:
		return MARK_OK;
	case SPACE_FRAME:
		return MARK_FRAME;
	case SPACE_UNREADABLE:
		return MARK_CHAIN;
	case SPACE_JUMBOGRAM:
		return MARK_JUMBOGRAM;
	case SPACE_TOO_LONG:
		return MARK_TOO_LONG;
	case SPACE_DEEP:
		return MARK_DEEP;
	case SPACE_REFUSED:
		return MARK_NO_SPACE;
	case SPACE_BROKEN:
		break;
	}
	return MARK_BROKEN;
}

/* Packets that must not be marked, whoever asks for it. MARK_OK or a reason. */
static __always_inline int may_mark(struct __sk_buff *skb, const struct packet *p, bool closed)
{
	__u32 type = bpf_ntohs(p->id.dport) >> 8;

	if (skb->ifindex == LOOPBACK_IFINDEX)
		return MARK_LOOPBACK;
	if ((skb->priority & MARK_OWN_BITS) == MARK_OWN_PRIORITY)
		return MARK_OWN;
	if (p->id.meta >> META_TUNNEL_SHIFT & 7)
		return MARK_TUNNEL;
	if (p->fragment)
		return MARK_FRAGMENT;
	if (p->id.proto == IPPROTO_ESP)
		return MARK_ESP;
	if (p->id.proto == IPPROTO_ICMPV6) {
		if (type < ICMPV6_INFORMATION)
			return MARK_ICMP_ERROR;
		if ((type >= 130 && type <= 137) || type == 143)
			return MARK_NEIGHBOR;
	}
	/* Set for what was received, here or on a port of a bridge, and not for what
	 * this host makes, by a socket or without one. */
	if (!closed && skb->ingress_ifindex)
		return MARK_TRANSIT;
	return mark_reason_of(space_framed(skb, p->l3_offset));
}

/* The place in a packet with extension headers, which find_layout() has found. */
static __always_inline int place_behind(struct __sk_buff *skb, const struct packet *p,
					const struct mark_layout *l, struct mark_place *place)
{
	if (l->authenticated)
		return MARK_AH;
	if (l->fragment)
		return MARK_FRAGMENT;
	place->upper = l->chain.offset;
	place->link = l->chain.link;
	place->proto = l->chain.next;
	place->join = l->last == IPPROTO_DSTOPTS ? l->chain.link : 0;
	return mark_reason_of(space_reach(skb, p->l3_offset, place->upper, 0));
}

/*
 * Whether the packet can grow by so many bytes; and the place in it, unless place->proto is an
 * extension header.
 */
static __always_inline int place_first(struct __sk_buff *skb, const struct packet *p, __u32 bytes,
				       struct mark_place *place)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip;
	int rc;

	if (p->l3_offset > HEADERS_MAX)
		return MARK_CHAIN;
	ip = data + p->l3_offset;
	if ((void *)(ip + 1) > end)
		return MARK_CHAIN;
	rc = mark_reason_of(space_fits(ip, bytes));
	if (rc != MARK_OK)
		return rc;
	place->upper = p->l3_offset + sizeof(*ip);
	place->join = 0;
	place->proto = ip->nexthdr;
	place->link = p->l3_offset + offsetof(struct ipv6hdr, nexthdr);
	return MARK_OK;
}

/*
 * The packet as measure() would find it now: each segment of a burst is longer by as many bytes, and
 * if they were cut again there may be more of them.
 */
static __always_inline void account_mark(struct __sk_buff *skb, struct packet *p, __u32 bytes)
{
	__u32 more = p->gso_packets, total;

	p->l4_offset += bytes;
	if (!skb->gso_size) {
		p->word[WORD_COUNTS] += (__u64)bytes << 32;
		return;
	}
	total = p->id.bytes - more * (p->repeated - p->l3_offset);
	p->repeated += bytes;
	more = segments_behind(skb, p->repeated) - 1;
	p->gso_packets = more;
	p->gso_bytes = more * p->repeated;
	p->rare |= more;
	p->word[WORD_COUNTS] =
		(__u64)(total + bytes + more * (p->repeated - p->l3_offset)) << 32 | (more + 1);
}

#endif

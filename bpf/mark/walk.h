/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where a packet has what concerns stages that insert, when it has extension headers at all.
 *
 * Input: where the first extension header is. Output: where the upper layer begins,
 * what names it, and the PDM option. Called by these stages for the few packets
 * that are not of the usual form. Its loops, and what is in them, are functions that
 * are verified alone. The same walk as in wire/pdm.
 */
#ifndef WAYMARK_MARK_WALK_H
#define WAYMARK_MARK_WALK_H

#define OPTIONS_MAX 32 /* walked in one header */
#define OPTIONS_RECEIVER 8 /* beyond padding, that Linux takes (max_dst_opts_number) */

/* Results of a walk in addition to enum mark_reason. */
#define WALK_OK (-1)

/* A Destination Options header and what is in it. */
struct mark_header {
	__u32 offset; /* of the header, from the frame's start */
	__u32 size;
	__u32 option; /* offset of the PDM option; 0: none */
	__u8 version2;
	__u8 others; /* options that are neither PDM nor padding */
	__u8 options; /* all of them */
	__u8 zero;
};

struct mark_layout {
	struct chain chain; /* out: at what is not an extension header any more */
	__u32 header_link; /* byte that names `marked` */
	struct mark_header marked; /* the header with the PDM option, if option is not 0 */
	struct mark_header dest; /* the Destination Options header met last */
	__u32 hop; /* size of the Hop-by-Hop header; 0: there is none */
	__u8 last; /* protocol number of the header before the upper layer; 0: none */
	__u8 version2;
	__u8 authenticated;
	__u8 fragment;
};

/* The option at `at`, of a header that ends at `end`: its size; 0: it is malformed. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int mark_option(struct __sk_buff *skb, struct mark_header *h, __u32 at, __u32 end)
{
	__u8 tlv[2];
	__u32 size;

	if (!h)
		return 0;
	size = option_size(skb, at, end, tlv);
	if (!size)
		return 0;
	if (tlv[0] == PDM_OPTION) {
		if (h->option || h->version2)
			return 0;
		if (tlv[1] == PDM_LEN)
			h->option = at;
		else if (tlv[1] == PDM_V2_LEN || tlv[1] == PDM_V2_ENCRYPTED_LEN)
			h->version2 = 1;
		else
			return 0;
	} else if (tlv[0] > OPTION_PADN) {
		h->others++;
	}
	h->options++;
	return size;
}

/* The options of one header; WALK_OK, or MARK_MALFORMED or MARK_CHAIN. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int mark_options(struct __sk_buff *skb, struct mark_header *h)
{
	__u32 at, end;

	if (!h)
		return MARK_MALFORMED;
	at = h->offset + 2;
	end = h->offset + h->size;
#pragma clang loop unroll(disable)
	for (int i = 0; i < OPTIONS_MAX + 1; i++) {
		__u32 size;

		if (at >= end)
			return WALK_OK;
		if (i == OPTIONS_MAX)
			break;
		size = mark_option(skb, h, at, end);
		if (!size)
			return MARK_MALFORMED;
		at += size;
	}
	return MARK_CHAIN;
}

/* A Destination Options header that the walk has passed, and the byte that names it. */
static __always_inline int add_header(struct __sk_buff *skb, struct mark_layout *l, __u32 offset,
				      __u32 link)
{
	bool before = l->marked.option || l->version2;
	int rc;

	__builtin_memset(&l->dest, 0, sizeof(l->dest));
	l->dest.offset = offset;
	l->dest.size = l->chain.offset - offset;
	rc = mark_options(skb, &l->dest);
	if (rc != WALK_OK)
		return rc;
	if ((l->dest.option || l->dest.version2) && before)
		return MARK_MALFORMED;
	if (l->dest.option) {
		l->marked = l->dest;
		l->header_link = link;
	}
	l->version2 |= l->dest.version2;
	return WALK_OK;
}

/*
 * Extension headers up to the upper layer. WALK_OK, or a reason: MARK_CHAIN for
 * headers that are too many, out of order or of unknown form, MARK_MALFORMED for
 * those that can't be.
 */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int mark_walk(struct __sk_buff *skb, struct mark_layout *l)
{
	if (!l)
		return MARK_CHAIN;
#pragma clang loop unroll(disable)
	for (int i = 0; i < EXT_HEADERS_MAX + 1; i++) {
		__u32 offset = l->chain.offset, link = l->chain.link;
		__u8 proto = l->chain.next;
		int rc;

		if (!is_extension(proto, true))
			return WALK_OK;
		/* Mobility, HIP, Shim6: their place in the order is their own. */
		if (i == EXT_HEADERS_MAX || proto > 63)
			return MARK_CHAIN;
		if (proto == IPPROTO_HOPOPTS && i) /* RFC 8200 section 4.3 */
			return MARK_MALFORMED;
		rc = pass_extension(skb, &l->chain);
		if (rc != PARSE_OK && rc != PARSE_MORE)
			return MARK_MALFORMED;
		l->last = proto;
		if (proto == IPPROTO_HOPOPTS) {
			l->hop = l->chain.offset - offset;
		} else if (proto == IPPROTO_AH) {
			l->authenticated = 1;
		} else if (proto == IPPROTO_FRAGMENT) {
			l->fragment = 1;
			if (l->chain.fragment == FRAGMENT_LATER)
				return WALK_OK; /* what follows is data */
		} else if (proto == IPPROTO_DSTOPTS) {
			rc = add_header(skb, l, offset, link);
			if (rc != WALK_OK)
				return rc;
		}
	}
	return MARK_CHAIN;
}

/* l3: offset of the IPv6 header, which is readable. */
static __always_inline int find_layout(struct __sk_buff *skb, __u32 l3, struct mark_layout *l)
{
	struct frame f = frame_of(skb);
	struct chain *c = &l->chain;
	struct ipv6hdr *ip;

	if (l3 > HEADERS_MAX)
		return MARK_CHAIN;
	ip = f.data + l3;
	if ((void *)(ip + 1) > f.end)
		return MARK_CHAIN;
	__builtin_memset(l, 0, sizeof(*l));
	c->offset = l3 + sizeof(*ip);
	c->link = l3 + offsetof(struct ipv6hdr, nexthdr);
	c->ip_end = ip->payload_len ? c->offset + bpf_ntohs(ip->payload_len) : skb->len;
	c->next = ip->nexthdr;
	c->ipv6 = true;
	return mark_walk(skb, l);
}

#endif

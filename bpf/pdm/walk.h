/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where a packet has what concerns PDM, when it has extension headers at all.
 *
 * In: where the first extension header is. Out: where the upper layer begins,
 * what names it, and the PDM option. Called by both stages for the few packets
 * that are not of the usual form; so it reads through a helper, wherever the
 * bytes are, and its two loops are functions that are verified alone. The same
 * walk as in wire/pdm.
 */
#ifndef WAYMARK_PDM_WALK_H
#define WAYMARK_PDM_WALK_H

#define OPTIONS_MAX 32 /* walked in one header */
#define OPTIONS_RECEIVER 8 /* beyond padding, that Linux takes (max_dst_opts_number) */

/* Results of a walk besides enum pdm_reason. */
#define WALK_OK (-1)

/* A Destination Options header and what is in it. */
struct pdm_header {
	__u32 offset; /* of the header, from the frame's start */
	__u32 size;
	__u32 option; /* offset of the PDM option; 0: none */
	__u8 version2;
	__u8 others; /* options that are neither PDM nor padding */
	__u8 options; /* all of them */
	__u8 zero;
};

struct pdm_layout {
	__u32 ip_end;
	__u32 upper; /* in: the first extension header. Out: what is not one any more */
	__u32 link; /* byte that names it: a Next Header field */
	__u32 last; /* extension header before it */
	__u32 header_link; /* byte that names `marked` */
	struct pdm_header marked; /* the header with the PDM option, if option is not 0 */
	struct pdm_header dest; /* the Destination Options header met last */
	__u8 proto; /* of upper */
	__u8 last_proto;
	__u8 version2;
	__u8 authenticated;
	__u8 fragment;
	__u8 zero[3];
};

/* The options of one header; WALK_OK, or PDM_MALFORMED or PDM_CHAIN. */
__noinline int pdm_options(struct __sk_buff *skb, struct pdm_header *h)
{
	__u32 at, end;

	if (!h)
		return PDM_MALFORMED;
	at = h->offset + 2;
	end = h->offset + h->size;
#pragma clang loop unroll(disable)
	for (int i = 0; i < OPTIONS_MAX + 1; i++) {
		__u8 tlv[2] = {};
		__u32 size;

		if (at >= end)
			return WALK_OK;
		if (i == OPTIONS_MAX)
			break;
		if (at + 2 <= end) {
			if (bpf_skb_load_bytes(skb, at, tlv, 2))
				return PDM_MALFORMED;
		} else if (bpf_skb_load_bytes(skb, at, tlv, 1)) {
			return PDM_MALFORMED;
		}
		size = tlv[0] == OPTION_PAD1 ? 1 : tlv[1] + 2;
		if (at + size > end || (tlv[0] != OPTION_PAD1 && at + 2 > end))
			return PDM_MALFORMED;
		if (tlv[0] == PDM_OPTION) {
			if (h->option || h->version2)
				return PDM_MALFORMED;
			if (tlv[1] == PDM_LEN)
				h->option = at;
			else if (tlv[1] == PDM_V2_LEN || tlv[1] == PDM_V2_ENCRYPTED_LEN)
				h->version2 = 1;
			else
				return PDM_MALFORMED;
		} else if (tlv[0] > OPTION_PADN) {
			h->others++;
		}
		h->options++;
		at += size;
	}
	return PDM_CHAIN;
}

/*
 * Extension headers up to the upper layer. WALK_OK, or a reason: PDM_CHAIN for
 * headers that are too many, out of order or of unknown form, PDM_MALFORMED for
 * those that can't be.
 */
__noinline int pdm_walk(struct __sk_buff *skb, struct pdm_layout *l)
{
	if (!l)
		return PDM_CHAIN;
#pragma clang loop unroll(disable)
	for (int i = 0; i < EXT_HEADERS_MAX + 1; i++) {
		struct ext_header ext = {};
		__u32 size;

		if (!is_extension(l->proto, true))
			return WALK_OK;
		/* Mobility, HIP, Shim6: their place in the order is their own. */
		if (i == EXT_HEADERS_MAX || l->proto > 63)
			return PDM_CHAIN;
		if (l->proto == IPPROTO_HOPOPTS && i) /* RFC 8200 section 4.3 */
			return PDM_MALFORMED;
		if (l->upper + sizeof(ext) > l->ip_end ||
		    bpf_skb_load_bytes(skb, l->upper, &ext, sizeof(ext)))
			return PDM_MALFORMED;
		size = (ext.len + 1) * 8;
		if (l->proto == IPPROTO_AH) {
			size = (ext.len + 2) * 4; /* RFC 4302 section 2.2 */
			l->authenticated = 1;
		} else if (l->proto == IPPROTO_FRAGMENT) {
			size = sizeof(ext);
			l->fragment = 1;
			if (bpf_ntohs(ext.rest) & 0xfff8)
				return WALK_OK; /* what follows is data */
		}
		if (l->upper + size > l->ip_end)
			return PDM_MALFORMED;
		if (l->proto == IPPROTO_DSTOPTS) {
			bool before = l->marked.option || l->version2;
			int rc;

			__builtin_memset(&l->dest, 0, sizeof(l->dest));
			l->dest.offset = l->upper;
			l->dest.size = size;
			rc = pdm_options(skb, &l->dest);
			if (rc != WALK_OK)
				return rc;
			if ((l->dest.option || l->dest.version2) && before)
				return PDM_MALFORMED;
			if (l->dest.option) {
				l->marked = l->dest;
				l->header_link = l->link;
			}
			l->version2 |= l->dest.version2;
		}
		l->last = l->upper;
		l->last_proto = l->proto;
		l->link = l->upper;
		l->proto = ext.next;
		l->upper += size;
	}
	return PDM_CHAIN;
}

/* l3: offset of the IPv6 header, which is readable. */
static __always_inline int find_layout(struct __sk_buff *skb, __u32 l3, struct pdm_layout *l)
{
	struct ipv6hdr *ip;
	void *data = (void *)(long)skb->data;

	if (l3 > HEADERS_MAX)
		return PDM_CHAIN;
	ip = data + l3;
	if ((void *)(ip + 1) > (void *)(long)skb->data_end)
		return PDM_CHAIN;
	__builtin_memset(l, 0, sizeof(*l));
	l->upper = l3 + sizeof(*ip);
	l->link = l3 + offsetof(struct ipv6hdr, nexthdr);
	l->ip_end = ip->payload_len ? l->upper + bpf_ntohs(ip->payload_len) : skb->len;
	l->proto = ip->nexthdr;
	return pdm_walk(skb, l);
}

#endif

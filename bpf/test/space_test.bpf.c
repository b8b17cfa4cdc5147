// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Two stages that insert into one packet, and remove what they inserted, run by
 * BPF_PROG_TEST_RUN: a Hop-by-Hop header directly after the IPv6 header, and a
 * Destination Options header directly before the upper layer, with one change of
 * the packet's size each way.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "frame_tc.h"
#include "extension.h"
#include "space.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define L3 (sizeof(struct ethhdr))
#define HEADERS (L3 + sizeof(struct ipv6hdr))
#define FRONT 8 /* bytes of the Hop-by-Hop header */
#define BACK 16 /* of the Destination Options header */
#define GROW (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

/* A header with nothing but PadN, and what names it, at `link`. */
static __always_inline bool write_header(struct __sk_buff *skb, __u32 at, __u8 bytes, __u32 link,
					 __u8 proto)
{
	__u8 header[BACK] = { 0, bytes / 8 - 1, OPTION_PADN, bytes - 4 };

	if (bpf_skb_load_bytes(skb, link, header, 1))
		return false;
	/* Constant sizes: Linux 6.1 refuses those that may be 0. */
	return (bytes == FRONT ? space_put(skb, at, header, FRONT)
			       : space_put(skb, at, header, BACK)) &&
	       space_put(skb, link, &proto, 1);
}

static __always_inline int find_upper(struct __sk_buff *skb, struct chain *chain)
{
	chain->ipv6 = true;
	chain->offset = HEADERS;
	chain->link = L3 + offsetof(struct ipv6hdr, nexthdr);
	chain->ip_end = skb->len;
	if (bpf_skb_load_bytes(skb, chain->link, &chain->next, 1))
		return SPACE_UNREADABLE;
	if (is_extension(chain->next, true) && walk_extensions(skb, chain) != PARSE_OK)
		return SPACE_UNREADABLE;
	return SPACE_OK;
}

/* Returns enum space_result. */
SEC("tc")
int test_grow(struct __sk_buff *skb)
{
	struct chain chain = {};
	struct ipv6hdr *ip;
	struct space s;
	int rc;

	rc = space_framed(skb, L3);
	if (rc != SPACE_OK)
		return rc;
	rc = find_upper(skb, &chain);
	if (rc != SPACE_OK)
		return rc;
	ip = (void *)(long)skb->data + L3;
	if ((void *)(ip + 1) > (void *)(long)skb->data_end)
		return SPACE_UNREADABLE;
	rc = space_fits(ip, FRONT + BACK);
	if (rc != SPACE_OK)
		return rc;
	rc = space_reach(skb, L3, chain.offset, 0);
	if (rc != SPACE_OK)
		return rc;
	rc = space_make(skb, L3, FRONT + BACK, GROW, &s);
	if (rc != SPACE_OK)
		return rc;
	/* The first stage writes, and leaves the rest of the gap to the second. */
	if (!write_header(skb, s.at, FRONT, L3 + offsetof(struct ipv6hdr, nexthdr),
			  IPPROTO_HOPOPTS))
		return SPACE_BROKEN;
	space_use(&s, FRONT);
	rc = space_forward(skb, &s, chain.offset + FRONT + BACK);
	if (rc != SPACE_OK)
		return rc;
	/* What named the upper layer moved by FRONT, or was the first one's header. */
	chain.link = chain.offset == HEADERS ? HEADERS : chain.link + FRONT;
	if (!write_header(skb, s.at, BACK, chain.link, IPPROTO_DSTOPTS))
		return SPACE_BROKEN;
	return SPACE_OK;
}

/* The way back. The last header is the second stage's, the first one the first's. */
SEC("tc")
int test_shrink(struct __sk_buff *skb)
{
	__u32 link = L3 + offsetof(struct ipv6hdr, nexthdr);
	struct chain chain = {};
	__u8 upper, first;
	struct space s;
	int rc;

	rc = find_upper(skb, &chain);
	if (rc != SPACE_OK)
		return rc;
	s = (struct space){ .at = chain.offset - BACK, .bytes = BACK };
	rc = space_removable(skb, L3, s.at - FRONT, FRONT + BACK);
	if (rc != SPACE_OK)
		return rc;
	/* Names the upper layer where the last header was named. */
	chain.next = IPPROTO_HOPOPTS;
	chain.ip_end = s.at;
	chain.offset = HEADERS;
	chain.link = link;
	if (bpf_skb_load_bytes(skb, s.at, &upper, 1) || walk_extensions(skb, &chain) == PARSE_OK)
		return SPACE_UNREADABLE;
	if (!space_put(skb, chain.link, &upper, 1))
		return SPACE_BROKEN;
	rc = space_back(skb, &s, HEADERS + FRONT);
	if (rc != SPACE_OK)
		return rc;
	if (bpf_skb_load_bytes(skb, HEADERS, &first, 1) || !space_put(skb, link, &first, 1))
		return SPACE_BROKEN;
	space_join(&s, FRONT);
	return space_take(skb, L3, &s, SPACE_SAME_NEXT, GROW);
}

/* Brings the type into the debug information that the Go one is made from. */
const enum space_result *const results __attribute__((unused));

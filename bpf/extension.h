/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Extension headers of IPv6 (RFC 8200 section 4), and the options in them.
 *
 * Input: where the first header is, and the protocol number that names it. Output:
 * one header, or one option, further. All loops over headers are made of these
 * steps: that of the parser, here, and those of stages that need more of a chain.
 * They read through a helper, wherever the bytes are, since a loop over packet
 * pointers multiplies the verifier's work; and only few packets need them.
 */
#ifndef WAYMARK_EXTENSION_H
#define WAYMARK_EXTENSION_H

#define EXT_HEADERS_MAX 8
#define HEADERS_MAX 0x4100 /* bytes: eight of the longest extension headers fit */

/* Results in addition to enum reason: ours, below zero. */
#define PARSE_OK (-1)
#define PARSE_PULL (-2)
#define PARSE_MORE (-3)

enum fragment { FRAGMENT_NONE, FRAGMENT_FIRST, FRAGMENT_LATER };

#define FRAGMENT_HEADER 8 /* bytes */

#define OPTION_PAD1 0
#define OPTION_PADN 1

/* The start that all extension headers share. */
struct ext_header {
	__u8 next;
	__u8 len;
	__be16 rest;
	__be32 id; /* Fragment header only */
};

/* A walk along extension headers: where it stands and what it has met. */
struct chain {
	__u32 offset; /* of what `next` names */
	__u32 ip_end;
	__u32 link; /* offset of the byte that names it: Next Header, which headers begin with */
	__u32 frag_id;
	__u8 next;
	__u8 fragment; /* enum fragment */
	__u8 ipv6;
};

/* Protocol numbers below 64 that are extension headers. */
#define EXT_IPV6                                                                        \
	(1ULL << IPPROTO_HOPOPTS | 1ULL << IPPROTO_ROUTING | 1ULL << IPPROTO_FRAGMENT | \
	 1ULL << IPPROTO_AH | 1ULL << IPPROTO_DSTOPTS)
#define EXT_IPV4 (1ULL << IPPROTO_AH)

static __always_inline bool is_extension(__u8 next, bool ipv6)
{
	if (next < 64)
		return (ipv6 ? EXT_IPV6 : EXT_IPV4) >> next & 1;
	return ipv6 && (next == 135 || next == 139 || next == 140); /* Mobility, HIP, Shim6 */
}

/* Passes an extension header. PARSE_MORE: another one follows; PARSE_OK; or a reason. */
static __always_inline int pass_extension(frame_ctx *ctx, struct chain *chain)
{
	struct ext_header ext;
	__u32 len;

	if (chain->offset + sizeof(ext) > chain->ip_end)
		return REASON_MALFORMED;
	if (frame_load(ctx, chain->offset, &ext, sizeof(ext)))
		return REASON_UNREADABLE;
	len = (ext.len + 1) * 8;
	if (chain->next == IPPROTO_AH)
		len = (ext.len + 2) * 4; /* RFC 4302 section 2.2 */
	if (chain->next == IPPROTO_FRAGMENT) {
		__u16 field = bpf_ntohs(ext.rest);

		len = sizeof(ext);
		chain->frag_id = ext.id;
		if (field & 0xfff8)
			chain->fragment = FRAGMENT_LATER;
		else if (field & 1)
			chain->fragment = FRAGMENT_FIRST;
	}
	if (chain->offset + len > chain->ip_end)
		return REASON_MALFORMED;
	chain->next = ext.next;
	chain->link = chain->offset;
	chain->offset += len;
	if (chain->fragment == FRAGMENT_LATER || !is_extension(ext.next, chain->ipv6))
		return PARSE_OK;
	return PARSE_MORE;
}

/*
 * All extension headers up to the transport header, or up to a later fragment. A
 * function that is verified alone.
 */
__noinline int walk_extensions(frame_ctx *ctx, struct chain *chain)
{
	int rc;

	if (!chain)
		return REASON_UNREADABLE;
#pragma clang loop unroll(disable)
	for (int i = 0; i < EXT_HEADERS_MAX; i++) {
		rc = pass_extension(ctx, chain);
		if (rc != PARSE_MORE)
			return rc;
	}
	return REASON_EXT_CHAIN;
}

/* Size of the option at an offset, whose header ends at `end`; 0 where there can be none. */
static __always_inline __u32 option_size(frame_ctx *ctx, __u32 at, __u32 end, __u8 tlv[2])
{
	__u32 size;

	tlv[1] = 0;
	if (at + 2 > end) {
		if (frame_load(ctx, at, tlv, 1) || tlv[0] != OPTION_PAD1)
			return 0;
		return 1;
	}
	if (frame_load(ctx, at, tlv, 2))
		return 0;
	size = tlv[0] == OPTION_PAD1 ? 1 : tlv[1] + 2;
	return at + size > end ? 0 : size;
}

#endif

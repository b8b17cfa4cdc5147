/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From a frame to struct packet, whatever the frame is: link header, IP, tunnel,
 * transport, fragment, GSO.
 *
 * Input: a frame. Output: all that is counted of it, or a reason why it is in no
 * flow. Called at every hook, for frames that fast.h leaves.
 */
#ifndef WAYMARK_DISSECT_H
#define WAYMARK_DISSECT_H

#include "gso.h"
#include "count.h"
#include "extension.h"
#include "parse.h"
#include "tunnel.h"
#include "burst.h"
#include "fragment.h"

/* Bytes that the kernel puts into one buffer for us: those that nearly all headers
 * need, or with tunnels may need; and those that the longest may need. */
#define PULL_MAX 512
#define PULL_ALL (HEADERS_MAX + 64)

/*
 * One pass. Not static: verified once, and not for each pass of each caller, which would be a third
 * of the verifier's work.
 */
__noinline int parse_frame(frame_ctx *ctx, struct packet *p)
{
	struct cursor c;
	__u32 readable;
	__be16 proto;
	int rc;

	if (!p)
		return REASON_UNREADABLE;
	c.frame = frame_of(ctx);
	c.pos = c.frame.data;
	c.len = frame_len(ctx);
	c.ip_end = 0;
	readable = c.frame.end - c.frame.data;
	if (cfg_features & FEATURE_TUNNELS && readable < PULL_MAX && readable < c.len)
		return PARSE_PULL;

	if (cfg_features & FEATURE_NO_LINK) {
		__u8 *version = HEADER(&c, __u8);

		if (!version)
			return c.len ? PARSE_PULL : REASON_TRUNCATED;
		proto = *version >> 4 == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
		p->id.meta |= L2_NONE << META_L2_SHIFT;
	} else {
		rc = parse_link(&c, p, &proto);
		if (rc != PARSE_OK)
			return rc;
	}
	if (proto != bpf_htons(ETH_P_IP) && proto != bpf_htons(ETH_P_IPV6))
		return proto == bpf_htons(ETH_P_ARP) ? REASON_ARP : REASON_ETHERTYPE;
	rc = parse_ip(&c, p, proto);
	if (rc != PARSE_OK)
		return rc;
	if (cfg_features & FEATURE_TUNNELS && p->fragment == FRAGMENT_NONE)
		return parse_tunnel(ctx, p);
	return PARSE_OK;
}

/*
 * Parses once; when headers are beyond what can be read, pulls them and parses
 * again.
 * PARSE_OK and all of the packet, or a reason. Verified alone.
 */
__noinline int parse(frame_ctx *ctx, __u32 direction, struct packet *p)
{
	__u32 len, pull;
	int rc;

	if (!p)
		return REASON_UNREADABLE;
#pragma clang loop unroll(disable)
	/* 64 bits: half a word of the stack is unknown to the verifier once the other is written. */
	for (__u64 pass = 0; pass < 3; pass++) {
		__builtin_memset(p, 0, sizeof(*p));
		p->id.iface = iface_of(ctx);
		p->id.meta = direction << META_DIRECTION_SHIFT;
		rc = parse_frame(ctx, p);
		if (rc != PARSE_PULL)
			break;
		rc = REASON_UNREADABLE;
		len = frame_len(ctx);
		pull = pass ? PULL_ALL : PULL_MAX;
		if (pass == 2 || frame_pull(ctx, len < pull ? len : pull))
			break;
	}
	if (rc != PARSE_OK)
		return rc;
	if (p->fragment) {
		rc = fragment_ports(p, frame_is_dry(ctx));
		if (rc != PARSE_OK)
			count(ctx, direction, rc);
	}
	measure(ctx, p);
	return PARSE_OK;
}

#endif

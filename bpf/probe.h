/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The stages of the flow probe at a tc hook, in order. Who includes this has
 * config.h and a clock for PDM before it.
 */
#ifndef WAYMARK_PROBE_H
#define WAYMARK_PROBE_H

#include "hash.h"
#include "gso.h"
#include "count.h"
#include "parse.h"
#include "fast.h"
#include "tunnel.h"
#include "burst.h"
#include "fragment.h"
#include "flow/handshake.h"
#include "flow/flow.h"
#include "flow/batch.h"
#include "pdm/pdm.h"

/* Headers that the kernel makes linear for us when they are in fragments. */
#define PULL_MAX 512

static __always_inline int parse_frame(struct __sk_buff *skb, struct packet *p)
{
	__u32 gso = skb->gso_size;
	struct cursor c;
	__be16 proto;
	int rc;

	c.start = (void *)(long)skb->data;
	c.pos = c.start;
	c.end = (void *)(long)skb->data_end;
	c.len = skb->len;
	c.ip_end = 0;
	if (cfg_features & FEATURE_TUNNELS && c.end - c.start < PULL_MAX && c.end - c.start < c.len)
		return PARSE_PULL;

	if (cfg_features & FEATURE_NO_LINK) {
		__u8 *version = HEADER(&c, __u8);

		if (!version)
			return c.len ? PARSE_PULL : REASON_TRUNCATED;
		proto = *version >> 4 == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
		p->id.meta |= L2_NONE << META_L2_SHIFT;
	} else {
		rc = parse_link(skb, &c, p, &proto);
		if (rc != PARSE_OK)
			return rc;
	}
	if (proto != bpf_htons(ETH_P_IP) && proto != bpf_htons(ETH_P_IPV6))
		return proto == bpf_htons(ETH_P_ARP) ? REASON_ARP : REASON_ETHERTYPE;
	rc = parse_ip(skb, &c, p, proto, gso);
	if (rc != PARSE_OK)
		return rc;
	if (cfg_features & FEATURE_TUNNELS && p->fragment == FRAGMENT_NONE)
		return parse_tunnel(skb, p);
	return PARSE_OK;
}

/*
 * Parses once; when headers are not linear, makes them so and parses again.
 * PARSE_OK and all of the packet, or a reason.
 */
static __noinline int parse(struct __sk_buff *skb, __u32 direction, struct packet *p)
{
	int rc;

	if (!p)
		return REASON_UNREADABLE;
#pragma clang loop unroll(disable)
	for (int pass = 0; pass < 2; pass++) {
		__builtin_memset(p, 0, sizeof(*p));
		p->id.iface = iface_of(skb);
		p->id.meta = direction << META_DIRECTION_SHIFT;
		rc = parse_frame(skb, p);
		if (rc != PARSE_PULL)
			break;
		rc = REASON_UNREADABLE;
		if (pass == 0 && bpf_skb_pull_data(skb, skb->len < PULL_MAX ? skb->len : PULL_MAX))
			break;
	}
	if (rc != PARSE_OK)
		return rc;
	if (p->fragment)
		fragment_ports(skb, p);
	measure(skb, p);
	return PARSE_OK;
}

/* One packet in so many is counted; of all others only how many they are. */
static __always_inline bool is_sampled(__u32 features)
{
	return !(features & FEATURE_SAMPLING) || bpf_get_prandom_u32() <= cfg_sample_below;
}

/* All stages of a hook, in order. The verdict is TC_ACT_UNSPEC, or what PDM says. */
static __always_inline int stages(struct __sk_buff *skb, __u32 direction, __u32 features)
{
	bool sampled = is_sampled(features), marked = false;
	enum reason uncounted = sampled ? REASON_CPU_UNKNOWN : REASON_SAMPLED_OUT;
	struct flow_batch *batch = sampled ? batch_of_now() : NULL;
	int rc, verdict = TC_ACT_UNSPEC;
	struct packet *p;

	if (!batch && !(features & FEATURE_PDM)) {
		count(skb, direction, uncounted);
		return TC_ACT_UNSPEC;
	}
	p = batch ? batch_next(batch) : batch_spare();
	if (!p)
		return TC_ACT_UNSPEC;
	if (!parse_fast(skb, direction, features, p)) {
		rc = parse(skb, direction, p);
		if (rc != PARSE_OK) {
			count(skb, direction, batch ? rc : uncounted);
			return TC_ACT_UNSPEC;
		}
	}
	p->hash = hash_flow(&p->id);
	if (features & FEATURE_PDM && direction == DIRECTION_EGRESS) {
		verdict = pdm_mark(skb, p);
		if (verdict != TC_ACT_UNSPEC)
			return verdict;
	} else if (features & FEATURE_PDM) {
		marked = pdm_read(skb, p);
	}
	if (batch)
		handshake(skb, batch, p);
	else
		count(skb, direction, uncounted);
	if (features & FEATURE_PDM && direction == DIRECTION_INGRESS)
		verdict = pdm_strip(skb, p, marked);
	if (batch)
		batch_keep(batch);
	return verdict;
}

/* Most hooks need none of the features: their packets don't look for them. */
static __always_inline int probe(struct __sk_buff *skb, __u32 direction)
{
	__u32 features = cfg_features;

	if (!features)
		return stages(skb, direction, 0);
	return stages(skb, direction, features);
}

#endif

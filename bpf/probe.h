/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The stages of the flow probe at a tc hook, in order.
 */
#ifndef WAYMARK_PROBE_H
#define WAYMARK_PROBE_H

/* Headers that the kernel makes linear for us when they are in fragments. */
#define PULL_MAX 512

/* A device without link header: the frame begins with the IP header. */
const volatile bool cfg_no_link_header = false;

static __always_inline int parse_frame(struct __sk_buff *skb, struct packet *p, __u32 *link_len)
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
	if (cfg_tunnels && c.end - c.start < PULL_MAX && c.end - c.start < c.len)
		return PARSE_PULL;

	if (cfg_no_link_header) {
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
	*link_len = offset_of(&c);
	if (proto != bpf_htons(ETH_P_IP) && proto != bpf_htons(ETH_P_IPV6))
		return proto == bpf_htons(ETH_P_ARP) ? REASON_ARP : REASON_ETHERTYPE;
	rc = parse_ip(skb, &c, p, proto, gso);
	if (rc != PARSE_OK)
		return rc;
	if (cfg_tunnels && p->fragment == FRAGMENT_NONE)
		return parse_tunnel(skb, p);
	return PARSE_OK;
}

/* Parses once; when headers are not linear, makes them so and parses again. */
static __always_inline int parse(struct __sk_buff *skb, __u32 direction, struct packet *p,
				 __u32 *link_len)
{
	int rc = PARSE_PULL;

#pragma clang loop unroll(disable)
	for (int pass = 0; pass < 2; pass++) {
		__builtin_memset(p, 0, sizeof(*p));
		p->id.iface = iface_of(skb);
		p->id.meta = direction << META_DIRECTION_SHIFT;
		rc = parse_frame(skb, p, link_len);
		if (rc != PARSE_PULL)
			return rc;
		if (pass == 0 && bpf_skb_pull_data(skb, skb->len < PULL_MAX ? skb->len : PULL_MAX))
			break;
	}
	return REASON_UNREADABLE;
}

static __always_inline void probe(struct __sk_buff *skb, __u32 direction)
{
	__u32 link_len = 0;
	struct packet p;
	struct more more;
	int rc;

	if (cfg_sample_below != 0xffffffff && bpf_get_prandom_u32() > cfg_sample_below) {
		count(skb, direction, REASON_SAMPLED_OUT);
		return;
	}
	rc = parse(skb, direction, &p, &link_len);
	if (rc != PARSE_OK) {
		count(skb, direction, rc);
		return;
	}
	if (p.fragment)
		fragment_ports(skb, &p);
	more = measure(skb, &p, link_len);
	flow_account(skb, &p, &more);
}

#endif

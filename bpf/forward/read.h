/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Link and IP header of a frame that may be forwarded.
 *
 * Input: a frame at a port. Output: the interface that routes it, where its IP header begins, or why it is the kernel's. Called
 * by forward.h.
 */
#ifndef WAYMARK_FORWARD_READ_H
#define WAYMARK_FORWARD_READ_H

/* Neither loopback, nor multicast, nor "this network", which the kernel refuses before it looks for a route. */
static __always_inline bool forward_is_plain4(__be32 address)
{
	__u8 first = *(__u8 *)&address;

	return first && first != 127 && first < 224;
}

/* Neither multicast, link-local, unspecified, loopback, nor an IPv4 address. */
static __always_inline bool forward_is_plain6(const __be32 *address)
{
	__u8 first = *(const __u8 *)address;

	return first < 0xfe && address[0];
}

static __always_inline enum forward_result forward_read_ipv4(const struct iphdr *ip, __u32 present,
							     struct forward_view *v)
{
	v->total = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || ip->ihl < 5 || v->total < sizeof(*ip) || v->total > present)
		return FORWARD_MALFORMED;
	if (ip->ihl > 5 || ip->protocol == IPPROTO_AH)
		return FORWARD_OPTIONS;
	if (ipv4_sum(ip) != 0xffff)
		return FORWARD_MALFORMED;
	if (ip->frag_off & bpf_htons(0x3fff))
		return FORWARD_FRAGMENT;
	if (ip->ttl <= 1)
		return FORWARD_TTL;
	if (!forward_is_plain4(ip->saddr) || !forward_is_plain4(ip->daddr))
		return FORWARD_ADDRESS;
	return FORWARD_DONE;
}

static __always_inline enum forward_result forward_read_ipv6(const struct ipv6hdr *ip,
							     __u32 present, struct forward_view *v)
{
	const __be32 *addr = (const void *)&ip->saddr;

	v->total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (ip->version != 6 || v->total > present || v->total > 65535)
		return FORWARD_MALFORMED;
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return FORWARD_FRAGMENT;
	if (is_extension(ip->nexthdr, true))
		return FORWARD_OPTIONS;
	if (ip->hop_limit <= 1)
		return FORWARD_TTL;
	if (!forward_is_plain6(addr) || !forward_is_plain6(addr + 4))
		return FORWARD_ADDRESS;
	return FORWARD_DONE;
}

/* Link header. Most frames have no tag, and are for their port itself. */
static __always_inline enum forward_result forward_read_link(frame_ctx *xdp, struct forward_view *v)
{
	__u32 n = v->place & (FORWARD_PORTS - 1), tci;
	struct frame f = frame_of(xdp);
	const struct ethhdr *eth = f.data;

	if ((const void *)(eth + 1) > f.end)
		return FORWARD_NOT_IP;
	if (!port_is_mac(forward_memory.ports[n].mac, eth->h_dest) &&
	    !(v->flags & FORWARD_ADDRESSES))
		return FORWARD_OTHER_MAC;
	v->link = sizeof(*eth);
	v->device = v->scope = xdp->ingress_ifindex;
	if (v->flags & FORWARD_HIDES_TAGS && !v->dry) { /* a tag is in the frame then */
		if (!(cfg_features & FEATURE_HINTS))
			return FORWARD_TAG_UNKNOWN;
		if (frame_hint(xdp, &v->in.proto, &tci)) {
			v->in.vid = tci & FORWARD_VID;
			if (!v->in.vid) /* only a priority */
				return FORWARD_VLAN;
		}
		f = frame_of(xdp);
		eth = f.data;
		if ((const void *)(eth + 1) > f.end)
			return FORWARD_NOT_IP;
	}
	if (v->in.vid || port_is_tag(eth->h_proto) ||
	    v->flags & (FORWARD_UPPER | FORWARD_ADDRESSES))
		return forward_arrives(xdp, v);
	return FORWARD_DONE;
}

/* Link and IP header. */
static __always_inline enum forward_result forward_read(frame_ctx *xdp, struct forward_view *v)
{
	enum forward_result result = forward_read_link(xdp, v);
	__u32 link = v->link, present = v->len - link;
	struct frame f = frame_of(xdp);
	const void *ip, *type;
	__be16 proto;

	if (result != FORWARD_DONE)
		return result;
	link -= sizeof(proto);
	barrier_var(link);
	if (link > FORWARD_TAGGED - sizeof(proto))
		return FORWARD_NOT_IP;
	type = f.data + link;
	ip = type + sizeof(proto);
	if (ip + sizeof(struct iphdr) > f.end)
		return FORWARD_NOT_IP;
	proto = *(const __be16 *)type;
	if (proto == bpf_htons(ETH_P_IP))
		return forward_read_ipv4(ip, present, v);
	if (proto != bpf_htons(ETH_P_IPV6))
		return FORWARD_NOT_IP;
	if (ip + sizeof(struct ipv6hdr) > f.end)
		return FORWARD_MALFORMED;
	return forward_read_ipv6(ip, present, v);
}

#endif

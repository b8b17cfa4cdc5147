/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What hints.h computes from the bytes of a frame.
 *
 * Input: struct xdp_md. Output: the VLAN tag in front, if there is one; a hash of addresses and
 * ports. Nothing is pulled: headers beyond the first buffer are not in the hash.
 */
#ifndef WAYMARK_HINTS_HASH_H
#define WAYMARK_HINTS_HASH_H

struct hints_vlan_header {
	__be16 tci;
	__be16 proto; /* of what follows */
};

static __always_inline bool hints_is_tag(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* The outer tag of the frame; false: it has none. */
static __always_inline bool hints_tag(struct xdp_md *xdp, __be16 *proto, __u16 *tci)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *eth = data;
	struct hints_vlan_header *tag = (void *)(eth + 1);

	*proto = 0;
	*tci = 0;
	if ((void *)(tag + 1) > end || !hints_is_tag(eth->h_proto))
		return false;
	*proto = eth->h_proto;
	*tci = bpf_ntohs(tag->tci);
	return true;
}

static __always_inline __u32 hints_mix(__u32 hash, __u32 word)
{
	hash = (hash ^ word) * 0x9e3779b1;
	return hash ^ hash >> 15;
}

/* Ports, where the headers before them have the usual length. */
static __always_inline bool hints_hash_ports(void *at, void *end, __u8 proto, __u32 *hash)
{
	__u32 *ports = at;

	*hash = hints_mix(*hash, proto);
	if (proto != IPPROTO_TCP && proto != IPPROTO_UDP && proto != IPPROTO_SCTP)
		return false;
	if ((void *)(ports + 1) > end)
		return false;
	*hash = hints_mix(*hash, *ports);
	return true;
}

/*
 * A hash of addresses, protocol and ports; true: ports are in it. Those of fragments, and behind
 * options and extension headers, are not, as with most network cards.
 */
static __always_inline bool hints_hash(struct xdp_md *xdp, __u32 *hash)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *eth = data;
	__be16 proto;
	void *at = eth + 1;

	*hash = 0;
	if (at > end)
		return false;
	proto = eth->h_proto;
#pragma clang loop unroll(full)
	for (int i = 0; i < 2; i++) {
		struct hints_vlan_header *tag = at;

		if (!hints_is_tag(proto))
			break;
		if ((void *)(tag + 1) > end)
			return false;
		proto = tag->proto;
		at = tag + 1;
	}
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = at;

		if ((void *)(ip + 1) > end)
			return false;
		*hash = hints_mix(hints_mix(1, ip->saddr), ip->daddr);
		if (ip->ihl != 5 || ip->frag_off & bpf_htons(0x3fff)) {
			*hash = hints_mix(*hash, ip->protocol);
			return false;
		}
		return hints_hash_ports(ip + 1, end, ip->protocol, hash);
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = at;
		__u32 *word = (void *)&ip->saddr, sum = 2;

		if ((void *)(ip + 1) > end)
			return false;
#pragma clang loop unroll(full)
		for (int i = 0; i < 8; i++)
			sum = hints_mix(sum, word[i]);
		*hash = sum;
		return hints_hash_ports(ip + 1, end, ip->nexthdr, hash);
	}
	*hash = hints_mix(3, proto);
	return false;
}

#endif

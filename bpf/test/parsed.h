/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The least parser that a decision by a port needs.
 *
 * Input: a frame at XDP. Output: whether it is UDP to port 53 over IPv4.
 */
#ifndef WAYMARK_TEST_PARSED_H
#define WAYMARK_TEST_PARSED_H

static __always_inline bool parsed_dns(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);

	return (void *)(udp + 1) <= end && eth->h_proto == bpf_htons(ETH_P_IP) && ip->ihl == 5 &&
	       ip->protocol == IPPROTO_UDP && udp->dest == bpf_htons(53);
}

#endif

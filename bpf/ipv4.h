/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The checksum of IPv4 headers (RFC 791). Input: a header without options. Called by forward/ and balance/. */
#ifndef WAYMARK_IPV4_H
#define WAYMARK_IPV4_H

/* The sum of a header: 0xffff where its checksum is right; of one whose checksum is 0, the checksum's complement. */
static __always_inline __u16 ipv4_sum(const struct iphdr *ip)
{
	const __u16 *half = (const void *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < sizeof(*ip) / 2; i++)
		sum += half[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return sum + (sum >> 16);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ICMP errors about what a backend sent: they come to the address of the service, and concern one connection of it.
 *
 * Input: an ICMP or ICMPv6 error. Output: the connection that it quotes, as from the client. Called by balance.h.
 */
#ifndef WAYMARK_BALANCE_ERROR_H
#define WAYMARK_BALANCE_ERROR_H

static __always_inline bool balance_is_error(const struct packet *p)
{
	__u8 type = bpf_ntohs(p->id.dport) >> 8;

	if (p->fragment)
		return false;
	if (p->id.proto == IPPROTO_ICMPV6)
		return type && type < 128;
	return p->id.proto == IPPROTO_ICMP && (type == 3 || type == 11 || type == 12);
}

/* The addresses of an IPv6 header, each in the place of the other. */
static __always_inline void balance_other_way(struct balance_tuple *t, const __u8 *from,
					      const __u8 *to)
{
	__builtin_memcpy(t->saddr, to, 16);
	__builtin_memcpy(t->daddr, from, 16);
}

/* Where the ports are that it quotes; 0: nowhere. */
static __always_inline __u32 balance_quoted_ip(frame_ctx *xdp, const struct packet *p, __u32 at,
					       struct balance_tuple *t)
{
	struct ipv6hdr ip6;
	struct iphdr ip;

	if (p->id.meta >> META_IPV6_SHIFT & 1) {
		if (frame_load(xdp, at, &ip6, sizeof(ip6)))
			return 0;
		balance_other_way(t, (void *)&ip6.saddr, (void *)&ip6.daddr);
		t->proto = ip6.nexthdr;
		return at + sizeof(ip6);
	}
	if (frame_load(xdp, at, &ip, sizeof(ip)))
		return 0;
	((__u64 *)t->saddr)[0] = ((__u64 *)t->daddr)[0] = 0;
	((__u64 *)t->saddr)[1] = mapped(ip.daddr);
	((__u64 *)t->daddr)[1] = mapped(ip.saddr);
	t->proto = ip.protocol;
	return at + ip.ihl * 4;
}

/* False: it quotes no connection of the address that it came to. Verified alone. */
__feature(FEATURE_BALANCE) __noinline
	int balance_quoted(frame_ctx *xdp, struct packet *p, struct balance_view *v)
{
	const __u64 *to, *about;
	__be16 ports[2];
	__u32 at;

	if (!p || !v)
		return false;
	at = balance_quoted_ip(xdp, p, p->l4_offset + BALANCE_ICMP_BYTES, &v->tuple);
	if (!at || frame_load(xdp, at, ports, sizeof(ports)))
		return false;
	v->tuple.sport = ports[1];
	v->tuple.dport = ports[0];
	to = (const void *)p->id.daddr;
	about = (const void *)v->tuple.daddr;
	return to[0] == about[0] && to[1] == about[1];
}

#endif

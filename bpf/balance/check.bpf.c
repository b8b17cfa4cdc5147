// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Health checks on the way that packets of clients take: what the agent sends to the address of a service, with the number of
 * a backend in its mark, leaves for that backend, in the same headers.
 *
 * Input: a packet of this host at tc egress, at an interface of the balancer. Output: the packet for the backend, at the
 * interface where the route to it leads; all others as they are. Loaded and attached by internal/balance.
 */
#include "prelude.h"
#include "../abi.h"
#include "../ipv4.h"
#include "gue.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* That of the balancer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BALANCE_BACKENDS);
	__type(key, __u32);
	__type(value, struct balance_backend);
} balance_backends SEC(".maps");

/* Outer headers of any kind. */
struct check_outer {
	union {
		struct iphdr ip4;
		struct ipv6hdr ip6;
	};
	struct udphdr udp;
	struct gue_header gue;
};

static __always_inline void check_gue(struct udphdr *udp, struct gue_header *gue, __u32 length,
				      __u8 inner, __u32 hash)
{
	udp->source = bpf_htons(0xc000 | (hash & 0x3fff));
	udp->dest = bpf_htons(BALANCE_GUE_PORT);
	udp->len = bpf_htons(length);
	udp->check = 0;
	gue->form = 0;
	gue->proto = inner;
	gue->flags = 0;
}

/* Puts the headers in front of a packet. Not 0: they do not fit. */
static __always_inline int check_wrap(struct __sk_buff *skb, const struct balance_backend *b)
{
	__u32 header = b->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u32 added = header + (b->forwarding == BALANCE_GUE ? BALANCE_GUE_BYTES : 0);
	__u64 flags = b->ipv6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	__u8 inner = skb->protocol == bpf_htons(ETH_P_IPV6) ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__u32 length = skb->len - sizeof(struct ethhdr);
	__u8 proto = b->forwarding == BALANCE_GUE ? IPPROTO_UDP : inner;
	__be16 link = b->ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	struct check_outer o = {};

	if (b->forwarding == BALANCE_GUE)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (bpf_skb_adjust_room(skb, added, BPF_ADJ_ROOM_MAC, flags))
		return -1;
	if (b->ipv6) {
		*(__be32 *)&o.ip6 = bpf_htonl(6U << 28);
		o.ip6.payload_len = bpf_htons(length + added - header);
		o.ip6.nexthdr = proto;
		o.ip6.hop_limit = 64;
		__builtin_memcpy(&o.ip6.saddr, b->source, 16);
		__builtin_memcpy(&o.ip6.daddr, b->addr, 16);
	} else {
		o.ip4.version = 4;
		o.ip4.ihl = 5;
		o.ip4.tot_len = bpf_htons(length + added);
		o.ip4.frag_off = bpf_htons(0x4000);
		o.ip4.ttl = 64;
		o.ip4.protocol = proto;
		__builtin_memcpy(&o.ip4.saddr, b->source + 12, 4);
		__builtin_memcpy(&o.ip4.daddr, b->addr + 12, 4);
		o.ip4.check = ~ipv4_sum(&o.ip4);
	}
	check_gue(&o.udp, &o.gue, length + BALANCE_GUE_BYTES, inner, skb->hash);
	if (bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &o,
				b->ipv6 ? sizeof(o.ip6) : sizeof(o.ip4), 0) ||
	    bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &link, sizeof(link), 0))
		return -1;
	if (b->forwarding == BALANCE_GUE)
		return bpf_skb_store_bytes(skb, sizeof(struct ethhdr) + header, &o.udp,
					   BALANCE_GUE_BYTES, 0);
	return 0;
}

/* As the kernel's: to a neighbour, whose address it finds out if it has to. */
static __always_inline int check_neighbour(const struct balance_backend *b)
{
	struct bpf_redir_neigh to = { .nh_family = b->ipv6 ? 10 : 2 };

	if (b->forwarding != BALANCE_L2)
		return bpf_redirect_neigh(b->out, NULL, 0, 0);
	if (b->ipv6)
		__builtin_memcpy(to.ipv6_nh, b->addr, 16);
	else
		__builtin_memcpy(&to.ipv4_nh, b->addr + 12, 4);
	return bpf_redirect_neigh(b->out, &to, sizeof(to), 0);
}

SEC("tc")
int waymark_check(struct __sk_buff *skb)
{
	__u32 number = skb->mark & (BALANCE_BACKENDS - 1);
	struct balance_backend *b;

	if ((skb->mark & ~(BALANCE_BACKENDS - 1)) != BALANCE_MARK)
		return -1; /* TCX_NEXT */
	b = bpf_map_lookup_elem(&balance_backends, &number);
	if (!b || !b->state || !b->out)
		return TC_ACT_SHOT;
	skb->mark = 0;
	if (b->forwarding != BALANCE_L2 && check_wrap(skb, b))
		return TC_ACT_SHOT;
	return check_neighbour(b);
}

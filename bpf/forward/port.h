/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What forwarding and balancing ask about interfaces and about frames at them.
 *
 * Input: a table of interfaces, a frame. Output: an entry; whether the frame is one that XDP may send on. Called by
 * forward.h and by balance/.
 */
#ifndef WAYMARK_FORWARD_PORT_H
#define WAYMARK_FORWARD_PORT_H

/* The place of an interface in a table; FORWARD_PORTS: it is not there. */
static __always_inline __u32 port_place(const volatile struct forward_port *ports, __u32 iface)
{
#pragma unroll
	for (int i = 0; i < FORWARD_WAYS; i++) {
		__u32 n = (iface + i) & (FORWARD_PORTS - 1);

		if (ports[n].iface == iface)
			return n;
	}
	return FORWARD_PORTS;
}

/* Link addresses, by pieces that are where they may be read at once. */
static __always_inline void port_copy_mac(void *to, const void *from)
{
	const volatile __u16 *a = from;
	__u16 *b = to;

	b[0] = a[0];
	b[1] = a[1];
	b[2] = a[2];
}

static __always_inline bool port_is_mac(const volatile void *one, const void *other)
{
	const volatile __u16 *a = one;
	const __u16 *b = other;

	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]));
}

static __always_inline bool port_is_tag(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* Whether a frame is for the address of its interface, and without a tag. */
static __always_inline enum forward_result
port_accepts(frame_ctx *xdp, const volatile struct forward_port *port, bool dry)
{
	struct frame f = frame_of(xdp);
	const struct ethhdr *eth = f.data;
	__u32 tci;

	if ((const void *)(eth + 1) > f.end)
		return FORWARD_NOT_IP;
	if (!port_is_mac(port->mac, eth->h_dest))
		return FORWARD_OTHER_MAC;
	if (port_is_tag(eth->h_proto))
		return FORWARD_VLAN;
	if (port->flags & FORWARD_HIDES_TAGS && !dry) { /* a tag is in the frame then */
		if (!(cfg_features & FEATURE_HINTS))
			return FORWARD_TAG_UNKNOWN;
		if (frame_hint_tag(xdp, &tci))
			return FORWARD_VLAN;
	}
	return FORWARD_DONE;
}

/* The addresses, a protocol and a length: what a sender leaves in the checksum for its device to complete (CHECKSUM_PARTIAL). */
static __always_inline __u16 port_partial_sum(const struct packet *p, __u8 proto, __u32 length)
{
	const __be32 *from = (const void *)p->id.saddr, *to = (const void *)p->id.daddr;
	__u64 sum = (__u64)bpf_htons(proto) + bpf_htons(length);

	if (!(p->id.meta >> META_IPV6_SHIFT & 1))
		return gate_fold(sum + from[3] + to[3]);
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)from[i] + to[i];
	return gate_fold(sum);
}

#define PORT_PIECES 20 /* of a packet, at most: 10 KiB */

struct port_piece {
	__u64 word[64];
};

/*
 * Whether a checksum is that of the whole packet. One of 65,536 is also what a sender would leave for its device. Verified
 * alone.
 */
__feature(FEATURE_FORWARD | FEATURE_BALANCE) __noinline
	int port_is_right(frame_ctx *xdp, struct packet *p)
{
	struct port_piece *piece = SCRATCH(struct port_piece, port_piece);
	__u32 at, end, n;
	__u64 sum;

	if (!p || !piece)
		return false;
	at = p->l4_offset;
	end = link_len_of(p) + p->id.bytes;
	sum = port_partial_sum(p, p->id.proto, end - at);
#pragma clang loop unroll(disable)
	for (int i = 0; i < PORT_PIECES && at < end; i++) {
		n = end - at - 1; /* less one: so the verifier sees that it is not 0 */
		barrier_var(n);
		if (n >= sizeof(piece->word))
			n = sizeof(piece->word) - 1;
		n++;
		__builtin_memset(piece, 0, sizeof(*piece));
		if (frame_load(xdp, at, piece->word, n))
			return false;
		sum += (__u32)bpf_csum_diff(NULL, 0, (void *)piece->word, sizeof(piece->word), 0);
		at += n;
	}
	return at == end && gate_fold(sum) == 0xffff;
}

/*
 * Between virtual devices, packets travel without their checksum, and only the kernel knows of it: it would be missing
 * where XDP sends them on. What cannot be found in such a packet is the kernel's, too.
 */
static __always_inline bool port_is_complete(frame_ctx *xdp, struct packet *p)
{
	__u32 offset = p->l4_offset;
	struct frame f = frame_of(xdp);
	const __u8 *l4;
	__u16 sum;

	if (p->id.proto == IPPROTO_ICMP || p->id.proto == IPPROTO_ICMPV6)
		return true; /* computed by the sender */
	barrier_var(offset);
	if (offset > 255)
		return false;
	l4 = f.data + offset;
	switch (p->id.proto) {
	case IPPROTO_TCP:
		if ((const void *)l4 + sizeof(struct tcphdr) > f.end)
			return false;
		sum = *(const __u16 *)(l4 + offsetof(struct tcphdr, check));
		break;
	case IPPROTO_UDP:
		if ((const void *)l4 + sizeof(struct udphdr) > f.end ||
		    is_tunnel_port(p->id.dport)) /* the inner one may be incomplete */
			return false;
		sum = *(const __u16 *)(l4 + offsetof(struct udphdr, check));
		if (!sum)
			return true; /* there is none */
		break;
	default:
		return false;
	}
	return sum != port_partial_sum(p, p->id.proto, p->id.bytes + link_len_of(p) - offset) ||
	       port_is_right(xdp, p);
}

#endif

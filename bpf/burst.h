/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From bytes of the frame to bytes on the wire.
 *
 * Input: a parsed packet. Output: the counters of struct packet. A GSO frame
 * stands for several packets. Each repeats all headers up to the innermost
 * transport header, however many tunnels are around it, and whichever of them
 * is recorded.
 */
#ifndef WAYMARK_BURST_H
#define WAYMARK_BURST_H

/* Tunnels inside tunnels that are looked into. */
#define NESTED_MAX 4

/* The kernel gives longer IPv6 packets a temporary jumbo option (BIG TCP). */
#define JUMBO_MIN 65536
#define JUMBO_HEADER 8

/* Where a walk into tunnels stands. */
struct nested {
	__u32 offset; /* of a header of protocol `next` */
	__u32 end; /* of the outermost IP packet: all inner ones end there, too */
	__u32 header; /* bytes before the payload of the innermost transport header so far; 0: none */
	__u8 next;
};

/* The transport header there. False where it is none that GSO cuts behind. */
static __always_inline bool nested_transport(frame_ctx *ctx, struct nested *n)
{
	__u32 len;
	__u8 doff;

	switch (n->next) {
	case IPPROTO_TCP:
		if (frame_load(ctx, n->offset + 12, &doff, sizeof(doff)))
			return false;
		len = doff >> 4 << 2;
		if (len < sizeof(struct tcphdr))
			return false;
		break;
	case IPPROTO_UDP:
		len = sizeof(struct udphdr);
		break;
	case IPPROTO_SCTP:
		len = 12;
		break;
	default:
		return false;
	}
	if (n->offset + len > n->end)
		return false;
	n->header = n->offset + len;
	return true;
}

/* Moves behind a GRE header. EtherType of what follows, or 0. */
static __always_inline __be16 nested_gre(frame_ctx *ctx, struct nested *n)
{
	struct gre_header gre;
	__u16 flags;

	if (frame_load(ctx, n->offset, &gre, sizeof(gre)))
		return 0;
	flags = bpf_ntohs(gre.flags);
	if (flags & GRE_UNREADABLE)
		return 0;
	n->offset +=
		sizeof(gre) + (flags >> 15) * 4 + (flags >> 13 & 1) * 4 + (flags >> 12 & 1) * 4;
	return gre.proto;
}

/* Moves behind VXLAN or Geneve, on any port: what is inside must fit exactly. */
static __always_inline __be16 nested_udp(frame_ctx *ctx, struct nested *n)
{
	struct {
		struct udphdr udp;
		struct geneve_header inner; /* or VXLAN's, of the same size */
	} h;

	if (frame_load(ctx, n->offset, &h, sizeof(h)))
		return 0;
	n->offset += sizeof(h);
	if (*(__be32 *)&h.inner & VXLAN_VNI_VALID)
		return bpf_htons(ETH_P_TEB);
	if (h.inner.ver_opt_len >> 6)
		return 0;
	n->offset += (h.inner.ver_opt_len & 0x3f) * 4;
	return h.inner.proto;
}

static __always_inline __be16 nested_tunnel(frame_ctx *ctx, struct nested *n)
{
	switch (n->next) {
	case IPPROTO_IPIP:
		return bpf_htons(ETH_P_IP);
	case IPPROTO_IPV6:
		return bpf_htons(ETH_P_IPV6);
	case IPPROTO_GRE:
		return nested_gre(ctx, n);
	case IPPROTO_UDP:
		return nested_udp(ctx, n);
	}
	return 0;
}

/* Moves behind an inner Ethernet header with up to two tags. */
static __always_inline __be16 nested_ethernet(frame_ctx *ctx, struct nested *n)
{
	__be16 proto = 0;

	n->offset += offsetof(struct ethhdr, h_proto);
#pragma clang loop unroll(full)
	for (int tags = 0; tags <= VLAN_TAGS_MAX; tags++) {
		if (frame_load(ctx, n->offset, &proto, sizeof(proto)))
			return 0;
		n->offset += sizeof(proto);
		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		n->offset += sizeof(struct vlan_header) - sizeof(proto);
	}
	return proto;
}

/* Moves behind an inner IP header that ends where the frame does. */
static __always_inline bool nested_ip(frame_ctx *ctx, struct nested *n, __be16 proto)
{
	struct chain chain = { .ip_end = n->end };
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} ip;
	__u32 header, total, rest = n->end - n->offset;

	if (n->offset > n->end)
		return false;
	if (proto == bpf_htons(ETH_P_IP)) {
		if (frame_load(ctx, n->offset, &ip, sizeof(ip.v4)))
			return false;
		header = ip.v4.ihl * 4;
		total = bpf_ntohs(ip.v4.tot_len);
		if (ip.v4.version != 4 || header < sizeof(ip.v4) ||
		    ip.v4.frag_off & bpf_htons(0x3fff))
			return false;
		chain.next = ip.v4.protocol;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		if (frame_load(ctx, n->offset, &ip, sizeof(ip.v6)))
			return false;
		header = sizeof(ip.v6);
		total = ip.v6.payload_len ? header + bpf_ntohs(ip.v6.payload_len) : 0;
		if (ip.v6.version != 6)
			return false;
		chain.next = ip.v6.nexthdr;
		chain.ipv6 = 1;
	} else {
		return false;
	}
	if (total != rest && (total || rest < JUMBO_MIN))
		return false;
	chain.offset = n->offset + header;
	if (is_extension(chain.next, chain.ipv6) &&
	    (walk_extensions(ctx, &chain) != PARSE_OK || chain.fragment))
		return false;
	n->offset = chain.offset;
	n->next = chain.next;
	return true;
}

/* One tunnel deeper. Not 0 where there is none, or nothing behind it to look for. */
__noinline int enter_nested(frame_ctx *ctx, struct nested *n)
{
	__be16 proto;

	if (!n)
		return 1;
	proto = nested_tunnel(ctx, n);
	if (proto == bpf_htons(ETH_P_TEB))
		proto = nested_ethernet(ctx, n);
	if (!nested_ip(ctx, n, proto))
		return 1;
	return nested_transport(ctx, n) && n->next != IPPROTO_UDP;
}

/*
 * Finds the innermost transport header by content, where the kernel does not say
 * where it is. An inner packet counts only if it fills the outer one exactly: the
 * first of many tunnelled datagrams in one frame (UDP_L4) does not. Unrolled: the
 * compiler enters the loop in its middle, which the verifier of 6.1 refuses.
 */
static __always_inline void walk_tunnels(frame_ctx *ctx, struct nested *n)
{
#pragma clang loop unroll(full)
	for (int depth = 0; depth < NESTED_MAX; depth++) {
		if (enter_nested(ctx, n))
			break;
	}
}

/* Bytes of the temporary jumbo option, which no segment has. */
static __always_inline __u32 jumbo_option(frame_ctx *ctx, const struct packet *p)
{
	__u32 at = p->l3_offset + sizeof(struct ipv6hdr);
	__u64 option;

	if (!(p->id.meta >> META_IPV6_SHIFT & 1) || p->id.bytes <= JUMBO_MIN ||
	    p->l4_offset != at + JUMBO_HEADER || frame_load(ctx, at, &option, sizeof(option)))
		return 0;
	/* Next header TCP, 8 bytes long, option 0xc2 of 4 bytes (RFC 2675). */
	return (bpf_be64_to_cpu(option) >> 32) == (IPPROTO_TCP << 24 | 0xc204) ? JUMBO_HEADER : 0;
}

/* Bytes of the frame's link header; an accelerated tag is not among them. */
static __always_inline __u32 link_len_of(const struct packet *p)
{
	__u32 l2 = p->id.meta >> META_L2_SHIFT & 7, tags = l2 >> 1, accelerated = l2 & 1;

	if (l2 == L2_NONE)
		return 0;
	if (l2 == L2_ETHER)
		return sizeof(struct ethhdr);
	return sizeof(struct ethhdr) + (tags - accelerated) * sizeof(struct vlan_header);
}

/*
 * What a GSO frame that is not plain TCP begins with and its segments repeat; 0
 * where nothing says so. With ESP there is a trailer, too, which is not there yet.
 */
static __always_inline __u32 repeated_of(frame_ctx *ctx, const struct packet *p, struct gso *g)
{
	struct nested n = {
		.offset = p->l4_offset,
		.end = p->l3_offset + p->id.bytes,
		.next = p->id.proto,
	};

	gso_of(ctx, g);
	if (g->header >= p->l4_offset)
		return g->header;
	if (p->id.proto == IPPROTO_UDP || p->id.proto == IPPROTO_SCTP)
		n.header = p->l4_offset + p->l4_len;
	walk_tunnels(ctx, &n);
	return n.header;
}

/* Not where segments differ in size (SCTP). */
static __always_inline bool explains_segments(frame_ctx *ctx, __u32 header)
{
	__u32 size = frame_gso_size(ctx);

	if (!frame_gso_segs(ctx) || size == 0xffff)
		return true;
	return header < frame_len(ctx) &&
	       (frame_len(ctx) - header + size - 1) / size == frame_gso_segs(ctx);
}

/*
 * A GSO frame is counted as its segments: p->repeated is what they all begin
 * with, which `header` is for a frame without a tunnel.
 */
__noinline int measure_burst(frame_ctx *ctx, struct packet *p)
{
	__u32 header, repeated, more, removed = 0, inserted = 0;
	struct gso g = {};
	bool exact = true;

	if (!p)
		return 0;
	header = p->l4_offset + p->l4_len;
	repeated = header;
	if (p->id.proto == IPPROTO_TCP) {
		removed = jumbo_option(ctx, p);
	} else if (!p->fragment) {
		repeated = repeated_of(ctx, p, &g);
		exact = repeated && p->id.proto != IPPROTO_ESP && explains_segments(ctx, repeated);
		if (!repeated || repeated > HEADERS_MAX)
			repeated = header;
	}
	more = segments_behind(ctx, repeated) - 1;
	if (g.type & GSO_UFO && more) {
		p->fragment = FRAGMENT_FIRST;
		if (p->id.meta >> META_IPV6_SHIFT & 1)
			inserted = FRAGMENT_HEADER;
	}
	if (!exact && more)
		count(ctx, p->id.meta & 1, REASON_GSO_INEXACT);
	p->id.packets += more;
	if (repeated > header)
		p->id.payload += more * (repeated - header);
	repeated += inserted - removed;
	p->repeated = repeated;
	p->gso_packets = more;
	p->gso_bytes = more * repeated + inserted - removed;
	p->overhead += more * (p->l3_offset - link_len_of(p));
	p->id.bytes += more * (repeated - p->l3_offset) + inserted - removed;
	return 0;
}

/* Also p->rare: what a slot of the flow table cannot hold. */
static __always_inline void measure(frame_ctx *ctx, struct packet *p)
{
	p->overhead = frame_len(ctx) - link_len_of(p) - p->id.bytes;
	p->id.packets = 1;
	p->id.last = bpf_jiffies64();
	p->id.payload = p->id.bytes + p->l3_offset - p->l4_offset - p->l4_len;
	if (frame_gso_size(ctx))
		measure_burst(ctx, p);
	p->rare = p->overhead | p->gso_packets | p->fragment | p->tcp_flags_high |
		  is_congested(p->id.tos);
}

#endif

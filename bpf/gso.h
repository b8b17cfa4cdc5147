/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the kernel knows about a GSO frame.
 *
 * struct __sk_buff has neither the type of a GSO frame nor the offset of its
 * innermost transport header. Both are read from struct sk_buff, at offsets that
 * the loader took from the kernel's type information (cfg_skb).
 *
 * Input: a frame with gso_size. Output: struct gso, or nothing where the kernel
 * does not let us read it.
 */
#ifndef WAYMARK_GSO_H
#define WAYMARK_GSO_H

/* enum in include/linux/skbuff.h; the same values since 5.6. */
enum gso_type {
	GSO_TCP = 1 << 0 | 1 << 4, /* TCPV4, TCPV6 */
	/* GRE, IPXIP4, IPXIP6 and UDP_TUNNEL, some of them with checksum; ESP */
	GSO_INSIDE = 0x3f << 6 | 1 << 15,
	GSO_SCTP = 1 << 14,
	GSO_UFO = 1 << 16, /* one datagram that leaves as IP fragments */
	GSO_UDP = 1 << 17, /* UDP_L4: many datagrams */
};

struct gso {
	__u32 type; /* enum gso_type; 0: not known */
	__u32 header; /* bytes before what is cut into segments; 0: not known */
};

static __always_inline int read_gso(struct __sk_buff *skb, __u32 *type, __u32 *transport)
{
	struct {
		__u64 head, data; /* neighbours in struct sk_buff, too: the loader checks it */
	} memory;
	__u32 end;
	__u16 at;
	int rc;

	if (!cfg_skb.head ||
	    bpf_probe_read_kernel(&memory, sizeof(memory), (void *)skb + cfg_skb.head) ||
	    bpf_probe_read_kernel(&end, sizeof(end), (void *)skb + cfg_skb.end) ||
	    bpf_probe_read_kernel(type, sizeof(*type),
				  (void *)memory.head + end + cfg_skb.gso_type))
		return -1;
	if (*type & GSO_INSIDE)
		rc = bpf_probe_read_kernel(&at, sizeof(at), (void *)skb + cfg_skb.inner_transport);
	else
		rc = bpf_probe_read_kernel(&at, sizeof(at), (void *)skb + cfg_skb.transport);
	*transport = at - (__u32)(memory.data - memory.head);
	return rc;
}

/*
 * Only for GSO frames that are not plain TCP: four reads through a helper. The
 * length of the header is what skb_gso_transport_seglen() in the kernel uses.
 */
__noinline int gso_of(struct __sk_buff *skb, struct gso *g)
{
	__u32 type = 0, at = 0;
	__u8 doff;

	if (!g)
		return 0;
	g->type = 0;
	g->header = 0;
	if (read_gso(skb, &type, &at))
		return 0;
	g->type = type;
	if (type & GSO_TCP) {
		if (bpf_skb_load_bytes(skb, at + 12, &doff, sizeof(doff)) || doff >> 4 < 5)
			return 0;
		at += doff >> 4 << 2;
	} else if (type & GSO_UDP) {
		at += sizeof(struct udphdr);
	} else if (type & GSO_SCTP) {
		at += 12;
	} else if (!(type & GSO_UFO)) {
		return 0;
	}
	if (at < skb->len)
		g->header = at;
	return 0;
}

/* Segments of a frame whose first `header` bytes each of them repeats. */
static __always_inline __u32 segments_behind(struct __sk_buff *skb, __u32 header)
{
	__u32 size = skb->gso_size;

	if (skb->gso_segs)
		return skb->gso_segs;
	return size && skb->len > header ? (skb->len - header + size - 1) / size : 1;
}

/* The headers that most GSO frames have; for those of which no more is known. */
#define GSO_HEADER_MIN (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct tcphdr))

/* The kernel sets gso_segs, but not of frames that a VM or a packet socket sends. */
__noinline int count_segments(struct __sk_buff *skb)
{
	struct gso g = {};

	gso_of(skb, &g);
	return segments_behind(skb, g.header ?: GSO_HEADER_MIN);
}

/* Packets that a frame stands for, whether it can be parsed or not. */
static __always_inline __u32 segments_of(struct __sk_buff *skb)
{
	if (!skb->gso_size)
		return 1;
	return skb->gso_segs ?: count_segments(skb);
}

#endif

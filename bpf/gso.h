/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a GSO frame is cut into, as far as the kernel knows.
 *
 * Input: a frame. Output: its segments, and struct gso with what they repeat, or
 * nothing where the kernel does not let us read it.
 */
#ifndef WAYMARK_GSO_H
#define WAYMARK_GSO_H

struct gso {
	__u32 type; /* enum gso_type; 0: not known */
	__u32 header; /* bytes before what is cut into segments; 0: not known */
};

/*
 * Only for GSO frames that are not plain TCP: four reads through a helper. The
 * length of the header is what skb_gso_transport_seglen() in the kernel uses.
 */
__noinline int gso_of(frame_ctx *ctx, struct gso *g)
{
	__u32 type = 0, at = 0;
	__u8 doff;

	if (!g)
		return 0;
	g->type = 0;
	g->header = 0;
	if (frame_gso(ctx, &type, &at))
		return 0;
	g->type = type;
	if (type & GSO_TCP) {
		if (frame_load(ctx, at + 12, &doff, sizeof(doff)) || doff >> 4 < 5)
			return 0;
		at += doff >> 4 << 2;
	} else if (type & GSO_UDP) {
		at += sizeof(struct udphdr);
	} else if (type & GSO_SCTP) {
		at += 12;
	} else if (!(type & GSO_UFO)) {
		return 0;
	}
	if (at < frame_len(ctx))
		g->header = at;
	return 0;
}

/* Segments of a frame whose first `header` bytes each of them repeats. */
static __always_inline __u32 segments_behind(frame_ctx *ctx, __u32 header)
{
	__u32 size = frame_gso_size(ctx);

	if (frame_gso_segs(ctx))
		return frame_gso_segs(ctx);
	return size && frame_len(ctx) > header ? (frame_len(ctx) - header + size - 1) / size : 1;
}

/* The headers that most GSO frames have; for those of which no more is known. */
#define GSO_HEADER_MIN (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct tcphdr))

/* The kernel sets gso_segs, but not of frames that a VM or a packet socket sends. */
__noinline int count_segments(frame_ctx *ctx)
{
	struct gso g = {};

	gso_of(ctx, &g);
	return segments_behind(ctx, g.header ?: GSO_HEADER_MIN);
}

/* Packets that a frame stands for, whether it can be parsed or not. */
static __always_inline __u32 segments_of(frame_ctx *ctx)
{
	if (!frame_gso_size(ctx))
		return 1;
	return frame_gso_segs(ctx) ?: count_segments(ctx);
}

#endif

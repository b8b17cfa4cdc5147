/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A frame, as all stages see it that do not change its length: nothing here depends on the hook.
 *
 * Input: what the kernel passes to a program, a frame_ctx. Output: the frame's
 * bytes, its length, and what else the kernel knows of it. frame_tc.h and
 * frame_xdp.h implement these functions for their hook, and a program includes one
 * of the two before all else that needs frames. FRAME_WRITABLE: bytes may be
 * written through pointers.
 *
 * A function that is verified alone can be passed a frame_ctx, but no pointers
 * into a packet: it begins with frame_of(), of which the compiler keeps what is used.
 */
#ifndef WAYMARK_FRAME_H
#define WAYMARK_FRAME_H

/* enum in include/linux/skbuff.h; the same values since 5.6. */
enum gso_type {
	GSO_TCP = 1 << 0 | 1 << 4, /* TCPV4, TCPV6 */
	/* GRE, IPXIP4, IPXIP6 and UDP_TUNNEL, some of them with checksum; ESP */
	GSO_INSIDE = 0x3f << 6 | 1 << 15,
	GSO_SCTP = 1 << 14,
	GSO_UFO = 1 << 16, /* one datagram that leaves as IP fragments */
	GSO_UDP = 1 << 17, /* UDP_L4: many datagrams */
};

struct frame {
	frame_ctx *ctx;
	void *data; /* first byte */
	void *end; /* of what can be read through pointers; the frame may be longer */
};

/* Invalid as soon as the frame is pulled or changed. */
static __always_inline struct frame frame_of(frame_ctx *ctx);

/* All bytes, wherever they are. */
static __always_inline __u32 frame_len(frame_ctx *ctx);

/* Whether all bytes can be read through pointers. */
static __always_inline bool frame_is_linear(frame_ctx *ctx);

/* The interface that the hook belongs to. */
static __always_inline __u32 frame_ifindex(frame_ctx *ctx);

/* Copies n bytes, wherever they are. Not 0 where the frame ends before. */
static __always_inline long frame_load(frame_ctx *ctx, __u32 offset, void *to, __u32 n);

/*
 * Writes n bytes. The frame can be read through pointers again only after frame_of(). Not 0 where
 * that fails.
 */
static __always_inline long frame_store(frame_ctx *ctx, __u32 offset, const void *from, __u32 n);

/* Changes a checksum that does not cover itself by a difference. Not 0 where that fails. Only where FRAME_WRITABLE is 0. */
static __always_inline long frame_replace_sum(frame_ctx *ctx, __u32 offset, __u32 difference);

/* The verdict that sends the frame back through its interface. */
static __always_inline int frame_send_back(frame_ctx *ctx);

/* Makes the first n bytes readable through pointers. Not 0 where that fails. */
static __always_inline long frame_pull(frame_ctx *ctx, __u32 n);

/* The VLAN tag that is not among the frame's bytes, if there is one. */
static __always_inline bool frame_tag(frame_ctx *ctx, __u32 *tci);

/* Payload of a segment; 0: the frame is one packet. */
static __always_inline __u32 frame_gso_size(frame_ctx *ctx);

/* Segments, where the kernel counted them; else 0. */
static __always_inline __u32 frame_gso_segs(frame_ctx *ctx);

/*
 * Type of a GSO frame (enum gso_type) and offset of its innermost transport
 * header. Not 0 where the kernel does not let us read them.
 */
static __always_inline int frame_gso(frame_ctx *ctx, __u32 *type, __u32 *transport);

/* Whether the frame was only made up, and nothing may be remembered of it. */
static __always_inline bool frame_is_dry(frame_ctx *ctx);

/* Number of that interface, as in flow_slot. */
static __always_inline __u32 iface_of(frame_ctx *ctx)
{
	return cfg_iface + frame_ifindex(ctx);
}

#endif

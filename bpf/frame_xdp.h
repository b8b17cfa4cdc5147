/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Frames at XDP: struct xdp_md, in one buffer or in several ("xdp.frags"). See
 * frame.h.
 *
 * They are as they came from the wire: tags are in the frame, and no frame stands
 * for several packets.
 */
#ifndef WAYMARK_FRAME_XDP_H
#define WAYMARK_FRAME_XDP_H

typedef struct xdp_md frame_ctx;

#include "frame.h"

/* Linux 6.18 and later. */
extern int bpf_xdp_pull_data(struct xdp_md *xdp, __u32 len) __ksym __weak;

/* Linux 6.2 and later; the verifier puts a move in place of the call. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

/* The kernel's view of a frame. */
struct xdp_buff {
	__u32 flags;
} __attribute__((preserve_access_index));

#define XDP_BUFF_HAS_FRAGS 1U

#define FRAME_WRITABLE 1

static __always_inline struct frame frame_of(frame_ctx *xdp)
{
	return (struct frame){
		.ctx = xdp,
		.data = (void *)(long)xdp->data,
		.end = (void *)(long)xdp->data_end,
	};
}

/* A call takes 10 ns where the kernel protects returns from speculation: most frames are in one buffer. */
static __always_inline __u32 frame_len(frame_ctx *xdp)
{
	const struct xdp_buff *buff;

	if (bpf_cast_to_kern_ctx) {
		buff = bpf_cast_to_kern_ctx(xdp);
		if (!(buff->flags & XDP_BUFF_HAS_FRAGS))
			return xdp->data_end - xdp->data;
	}
	return bpf_xdp_get_buff_len(xdp);
}

static __always_inline __u32 frame_ifindex(frame_ctx *xdp)
{
	return xdp->ingress_ifindex;
}

static __always_inline long frame_load(frame_ctx *xdp, __u32 offset, void *to, __u32 n)
{
	return bpf_xdp_load_bytes(xdp, offset, to, n);
}

static __always_inline long frame_store(frame_ctx *xdp, __u32 offset, const void *from, __u32 n)
{
	return bpf_xdp_store_bytes(xdp, offset, (void *)from, n);
}

static __always_inline bool frame_is_summed(frame_ctx *xdp)
{
	return false;
}

static __always_inline void frame_add_sum(frame_ctx *xdp, __u32 difference)
{
}

static __always_inline long frame_replace_sum(frame_ctx *xdp, __u32 offset, __u32 difference)
{
	return -1;
}

static __always_inline int frame_send_back(frame_ctx *xdp)
{
	return XDP_TX;
}

/* Drivers put headers into the first buffer, as a rule. */
static __always_inline long frame_pull(frame_ctx *xdp, __u32 n)
{
	return bpf_xdp_pull_data ? bpf_xdp_pull_data(xdp, n) : -1;
}

static __always_inline bool frame_tag(frame_ctx *xdp, __u32 *tci)
{
	return false;
}

static __always_inline __u32 frame_gso_size(frame_ctx *xdp)
{
	return 0;
}

static __always_inline __u32 frame_gso_segs(frame_ctx *xdp)
{
	return 0;
}

static __always_inline int frame_gso(frame_ctx *xdp, __u32 *type, __u32 *transport)
{
	return -1;
}

#endif

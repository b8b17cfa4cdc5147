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

/* The kernel's view of a frame, as far as it is read; internal/datapath/resolve.go knows where these are. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct netns_ipv4 {
	__u32 rt_genid;
};

struct rt6_statistics {
	__u32 fib_discarded_routes;
};

struct netns_ipv6 {
	__u32 fib6_sernum;
	struct rt6_statistics *rt6_stats;
};

struct net {
	struct netns_ipv4 ipv4;
	struct netns_ipv6 ipv6;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	possible_net_t nd_net;
};

struct xdp_rxq_info {
	struct net_device *dev;
};

struct xdp_buff {
	__u32 flags;
	struct xdp_rxq_info *rxq;
};
#pragma clang attribute pop

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

/* What user space wrote in front of a frame that it has the program try; NULL: the frame is real. See dry.h. */
static __always_inline struct dry_note *frame_dry_note(frame_ctx *xdp)
{
	void *meta = (void *)(long)xdp->data_meta, *data = (void *)(long)xdp->data;
	struct dry_note *note = meta;

	if (meta >= data || (void *)(note + 1) > data || note->key != cfg_dry_key)
		return NULL;
	return note;
}

static __always_inline bool frame_is_dry(frame_ctx *xdp)
{
	return cfg_features & (FEATURE_BALANCE | FEATURE_FORWARD) && frame_dry_note(xdp);
}

static __always_inline bool frame_is_linear(frame_ctx *xdp)
{
	const struct xdp_buff *buff;

	if (!bpf_cast_to_kern_ctx)
		return bpf_xdp_get_buff_len(xdp) == xdp->data_end - xdp->data;
	buff = bpf_cast_to_kern_ctx(xdp);
	return !(buff->flags & XDP_BUFF_HAS_FRAGS);
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

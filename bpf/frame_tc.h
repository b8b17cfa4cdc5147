/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Frames at tc (TCX, clsact): struct __sk_buff. See frame.h. */
#ifndef WAYMARK_FRAME_TC_H
#define WAYMARK_FRAME_TC_H

typedef struct __sk_buff frame_ctx;

#include "frame.h"

/* A sum over the packet (CHECKSUM_COMPLETE) would not be corrected: see frame_store() and frame_add_sum(). */
#define FRAME_WRITABLE 0

static __always_inline struct frame frame_of(frame_ctx *skb)
{
	return (struct frame){
		.ctx = skb,
		.data = (void *)(long)skb->data,
		.end = (void *)(long)skb->data_end,
	};
}

static __always_inline __u32 frame_len(frame_ctx *skb)
{
	return skb->len;
}

static __always_inline bool frame_is_dry(frame_ctx *skb)
{
	return false;
}

static __always_inline bool frame_is_linear(frame_ctx *skb)
{
	return skb->len == skb->data_end - skb->data;
}

static __always_inline __u32 frame_ifindex(frame_ctx *skb)
{
	return skb->ifindex;
}

static __always_inline long frame_load(frame_ctx *skb, __u32 offset, void *to, __u32 n)
{
	return bpf_skb_load_bytes(skb, offset, to, n);
}

/* A sum over the whole packet (CHECKSUM_COMPLETE) is corrected. */
static __always_inline long frame_store(frame_ctx *skb, __u32 offset, const void *from, __u32 n)
{
	return bpf_skb_store_bytes(skb, offset, from, n, BPF_F_RECOMPUTE_CSUM);
}

/* Whether the NIC summed up the whole packet: what is written without frame_store() has to be added to the sum. */
static __always_inline bool frame_is_summed(frame_ctx *skb)
{
	return bpf_csum_update(skb, 0) >= 0;
}

/* difference: of 16-bit words as they are in memory, folded; nothing happens where the NIC summed up nothing. */
static __always_inline void frame_add_sum(frame_ctx *skb, __u32 difference)
{
	bpf_csum_update(skb, difference);
}

static __always_inline long frame_replace_sum(frame_ctx *skb, __u32 offset, __u32 difference)
{
	return bpf_l4_csum_replace(skb, offset, 0, difference, 0);
}

static __always_inline int frame_send_back(frame_ctx *skb)
{
	return bpf_redirect(skb->ifindex, 0);
}

static __always_inline long frame_pull(frame_ctx *skb, __u32 n)
{
	return bpf_skb_pull_data(skb, n);
}

/* Of a tag that was accelerated: the NIC took it out of the frame, or will put it in. */
static __always_inline bool frame_tag(frame_ctx *skb, __u32 *tci)
{
	if (!skb->vlan_present)
		return false;
	*tci = skb->vlan_tci;
	return true;
}

/* The tag that a hint has and frame_tag() has not. */
static __always_inline bool frame_hint_tag(frame_ctx *skb, __u32 *tci)
{
	return false;
}

/* When the NIC received the frame, by its own clock; 0: not known. */
static __always_inline __u64 frame_nic_time(frame_ctx *skb)
{
	return skb->hwtstamp;
}

static __always_inline __u32 frame_gso_size(frame_ctx *skb)
{
	return skb->gso_size;
}

static __always_inline __u32 frame_gso_segs(frame_ctx *skb)
{
	return skb->gso_segs;
}

/*
 * struct __sk_buff has neither. Both are read from struct sk_buff, at offsets that
 * the loader took from the kernel's type information (cfg_skb).
 */
static __always_inline int frame_gso(frame_ctx *skb, __u32 *type, __u32 *transport)
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

/* From this length on, with all headers, the device takes no burst of IPv6 at once; 0: not known. */
static __always_inline __u32 frame_gso_max(frame_ctx *skb)
{
	__u32 max = 0;
	__u64 dev;

	if (!cfg_skb.head || bpf_probe_read_kernel(&dev, sizeof(dev), (void *)skb + cfg_skb.dev) ||
	    bpf_probe_read_kernel(&max, sizeof(max), (void *)dev + cfg_skb.gso_max_size))
		return 0;
	return max;
}

#endif

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What hints.h reads of each packet, as tests see it; and what an skb has of it later. */
#include "prelude.h"
#include "hints/hints.h"
#include "hints/meta.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct hints_seen {
	struct hints h;
	__u64 now;
	__u32 last; /* bytes of the packet */
};

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1024);
	__type(value, struct hints_seen);
} hints_queue SEC(".maps");

/* At tc, behind XDP. */
struct hints_skb {
	__u32 hash;
	__u32 vlan_present;
	__u32 vlan_tci;
	__be32 vlan_proto;
	__u32 last;
};

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1024);
	__type(value, struct hints_skb);
} hints_skbs SEC(".maps");

static __always_inline void see(struct xdp_md *xdp, bool bound)
{
	struct hints_seen s;

	__builtin_memset(&s, 0, sizeof(s));
	hints_read(xdp, &s.h, HINTS_ALL, bound);
	hints_count(&s.h, HINTS_ALL);
	bpf_xdp_load_bytes(xdp, bpf_xdp_get_buff_len(xdp) - sizeof(s.last), &s.last,
			   sizeof(s.last));
	s.now = bpf_ktime_get_ns();
	bpf_map_push_elem(&hints_queue, &s, 0);
}

SEC("xdp.frags")
int hints_bound(struct xdp_md *xdp)
{
	see(xdp, true);
	return XDP_PASS;
}

/* Its twin. */
SEC("xdp.frags")
int hints_unbound(struct xdp_md *xdp)
{
	see(xdp, false);
	return XDP_PASS;
}

SEC("tc")
int hints_tc(struct __sk_buff *skb)
{
	struct hints_skb s = {
		.hash = bpf_get_hash_recalc(skb),
		.vlan_present = skb->vlan_present,
		.vlan_tci = skb->vlan_tci,
		.vlan_proto = skb->vlan_proto,
	};

	bpf_skb_load_bytes(skb, skb->len - sizeof(s.last), &s.last, sizeof(s.last));
	bpf_map_push_elem(&hints_skbs, &s, 0);
	return TC_ACT_UNSPEC;
}

/* What XDP left in front of the packet. */
struct hints_left {
	struct hints_meta meta;
	__u64 now;
	__u32 hash; /* of the skb */
	__u32 found;
};

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1024);
	__type(value, struct hints_left);
} hints_lefts SEC(".maps");

SEC("tc")
int hints_tc_meta(struct __sk_buff *skb)
{
	const struct hints_meta *m =
		hints_meta_at((void *)(long)skb->data_meta, (void *)(long)skb->data);
	struct hints_left left = { .now = bpf_ktime_get_ns() };

	if (m) {
		left.meta = *m;
		left.found = 1;
	}
	left.hash = bpf_get_hash_recalc(skb);
	bpf_map_push_elem(&hints_lefts, &left, 0);
	return TC_ACT_UNSPEC;
}

const volatile __u16 push_tci = 0;
const volatile __u32 redirect_to = 0;

/* At egress of the peer: a tag that is not in the frame. */
SEC("tc")
int hints_push(struct __sk_buff *skb)
{
	return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), push_tci) ? TC_ACT_SHOT
									: TC_ACT_UNSPEC;
}

/* Frames that never were skbs. */
SEC("xdp")
int hints_redirect(struct xdp_md *xdp)
{
	return bpf_redirect(redirect_to, 0);
}

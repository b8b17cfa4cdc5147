// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A traffic generator. BPF_PROG_RUN with live frames hands the same frames to
 * this program again and again; each time it writes what changes, and sends the
 * frame out of an interface.
 */
#include "prelude.h"
#include "test/parsed.h"
#include "test/vary.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The interface that frames leave by. */
const volatile __u32 cfg_ifindex = 0;

SEC("xdp")
int generate(struct xdp_md *xdp)
{
	if (!vary((void *)(long)xdp->data, (void *)(long)xdp->data_end))
		return XDP_ABORTED;
	return bpf_redirect(cfg_ifindex, 0);
}

/* The first bytes of each frame. */
const volatile __u64 cfg_template[24] = {};

/* Frames that are forwarded come back changed: they begin as the template again. */
SEC("xdp")
int generate_again(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;

	if (data + sizeof(cfg_template) > end)
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < 24; i++)
		((__u64 *)data)[i] = cfg_template[i];
	return bpf_redirect(cfg_ifindex, 0);
}

/* On the other end: frames that were redirected arrive only where XDP is. */
SEC("xdp")
int receive(struct xdp_md *xdp)
{
	return XDP_PASS;
}

/* What a drop takes at least, at XDP and at tc. */
SEC("xdp")
int drop_early(struct xdp_md *xdp)
{
	return XDP_DROP;
}

/* A packet of IPv4 and UDP is dropped by its port. */
SEC("xdp")
int drop_parsed(struct xdp_md *xdp)
{
	return parsed_dns(xdp) ? XDP_DROP : XDP_PASS;
}

SEC("tc")
int drop_late(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

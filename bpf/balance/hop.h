/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where packets to a backend leave, by the kernel's tables: asked for once in a tick of the kernel's timer (1 to 10 ms)
 * for each backend and CPU, since the way seldom changes.
 *
 * Input: a backend. Output: interface, addresses and MTU, or why there are none; and XDP_REDIRECT sends a frame there.
 * Called by balance.h.
 */
#ifndef WAYMARK_BALANCE_HOP_H
#define WAYMARK_BALANCE_HOP_H

static __always_inline void balance_ask(frame_ctx *xdp, struct balance_view *v,
					const struct balance_backend *b, struct balance_hop *hop)
{
	const __be32 *from = (const void *)b->source, *to = (const void *)b->addr;
	long rc;

	__builtin_memset(&v->fib, 0, sizeof(v->fib));
	v->fib.ifindex = xdp->ingress_ifindex;
	if (b->ipv6) {
		v->fib.family = FORWARD_INET6;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			v->fib.ipv6_src[i] = from[i];
			v->fib.ipv6_dst[i] = to[i];
		}
	} else {
		v->fib.family = FORWARD_INET;
		v->fib.ipv4_src = from[3];
		v->fib.ipv4_dst = to[3];
	}
	rc = bpf_fib_lookup(xdp, &v->fib, sizeof(v->fib), 0);
	switch (rc) {
	case 0:
		hop->result = BALANCE_DONE;
		break;
	case FORWARD_DISABLED - FORWARD_BLACKHOLE + 1:
		hop->result = BALANCE_DISABLED;
		break;
	case FORWARD_NO_NEIGHBOUR - FORWARD_BLACKHOLE + 1:
		hop->result = BALANCE_NO_NEIGHBOUR;
		break;
	default:
		hop->result = rc < 0 ? BALANCE_LOOKUP : BALANCE_NO_ROUTE;
	}
	hop->ifindex = v->fib.ifindex;
	hop->mtu = v->fib.mtu_result;
	__builtin_memcpy(hop->dmac, v->fib.dmac, sizeof(hop->dmac));
	__builtin_memcpy(hop->smac, v->fib.smac, sizeof(hop->smac));
}

static __always_inline enum balance_result balance_hop_of(frame_ctx *xdp, struct balance_view *v,
							  const struct balance_backend *b,
							  struct balance_hop **out)
{
	__u32 number = v->backend, now = bpf_jiffies64(), place, flags;
	struct balance_load *load = bpf_map_lookup_elem(&balance_loads, &number);
	struct balance_hop *hop;

	if (!load)
		return BALANCE_LOOKUP;
	hop = &load->hop;
	if (hop->tick != now || !hop->known) {
		balance_ask(xdp, v, b, hop);
		hop->tick = now;
		hop->known = 1;
	}
	*out = hop;
	if (hop->result != BALANCE_DONE)
		return hop->result;
	place = port_place(balance_memory.ports, cfg_iface + hop->ifindex);
	if (place >= FORWARD_PORTS)
		return BALANCE_NO_PORT;
	flags = balance_memory.ports[place & (FORWARD_PORTS - 1)].flags;
	if (!(flags & FORWARD_SENDS))
		return BALANCE_NO_PORT;
	if (!(flags & FORWARD_SENDS_PARTS) && v->len > xdp->data_end - xdp->data)
		return BALANCE_PARTS;
	v->ifindex = hop->ifindex;
	/* Before anything is changed or counted: the device may be gone. */
	if (!balance_turns(xdp, v) &&
	    bpf_redirect_map(&balance_out, cfg_iface + v->ifindex, XDP_DROP) != XDP_REDIRECT)
		return BALANCE_NO_PORT;
	return BALANCE_DONE;
}

#endif

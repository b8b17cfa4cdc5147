// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Packets to measure forwarding and balancing with, which change what they pass on.
 *
 * Input: live frames or test runs that come again as they were left. Output: the template, as a packet of the next flow:
 * sent by an interface, or given to the program in bench_next. And what such a lane has at its end, and at least.
 */
#include "prelude.h"
#include "test/vary.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PASS_WORDS 10

/*
 * What frames begin with, and where the number of the flow goes: shifted up, into the last three bytes of an address, which
 * are 0 in the template. Checksums stay right: two words that have 0xffff in the template make up for it.
 */
const volatile struct {
	__u64 template[PASS_WORDS];
	__u32 address;
	__u32 shift;
	__u32 sums[2];
	__u32 ifindex; /* that frames leave by */
	__u32 length; /* of frames */
} cfg_pass = {};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} bench_next SEC(".maps");

static __always_inline bool pass_write(void *data, void *end)
{
	__u32 cpu = bpf_get_smp_processor_id(), flow, more;
	__u16 sum;

	if (cpu >= SENDERS_MAX || data + sizeof(cfg_pass.template) > end ||
	    data + cfg_pass.address + 4 > end || data + cfg_pass.sums[0] + 2 > end ||
	    data + cfg_pass.sums[1] + 2 > end)
		return false;
#pragma unroll
	for (int i = 0; i < PASS_WORDS; i++)
		((__u64 *)data)[i] = cfg_pass.template[i];
	flow = next_flow(&senders.cpu[cpu]) << cfg_pass.shift;
	*(__u32 *)(data + cfg_pass.address) |= bpf_htonl(flow & 0xffffff);
	more = (flow >> 16 & 0xff) + (flow & 0xffff);
	sum = ~((more & 0xffff) + (more >> 16));
	*(__u16 *)(data + cfg_pass.sums[0]) = bpf_htons(sum);
	*(__u16 *)(data + cfg_pass.sums[1]) = bpf_htons(sum);
	return true;
}

SEC("xdp")
int pass_send(struct xdp_md *xdp)
{
	if (!pass_write((void *)(long)xdp->data, (void *)(long)xdp->data_end))
		return XDP_ABORTED;
	return bpf_redirect(cfg_pass.ifindex, 0);
}

SEC("xdp.frags")
int pass_empty(struct xdp_md *xdp)
{
	return XDP_REDIRECT;
}

SEC("xdp.frags")
int pass_again(struct xdp_md *xdp)
{
	long grown =
		(long)xdp->data_end - (long)xdp->data - cfg_pass.length; /* by the run before */

	if (grown && bpf_xdp_adjust_head(xdp, grown))
		return XDP_ABORTED;
	if (!pass_write((void *)(long)xdp->data, (void *)(long)xdp->data_end))
		return XDP_ABORTED;
	bpf_tail_call(xdp, &bench_next, 0);
	return XDP_ABORTED;
}

/* What arrived at the end of a lane. Packets of a lane are on one processor. */
__u64 pass_arrived = 0;

SEC("xdp")
int pass_arrive(struct xdp_md *xdp)
{
	struct ethhdr *eth = (void *)(long)xdp->data;

	if ((void *)(eth + 1) > (void *)(long)xdp->data_end || eth->h_proto == bpf_htons(ETH_P_ARP))
		return XDP_PASS;
	pass_arrived++;
	return XDP_DROP;
}

/* What forwarding takes at least: a packet of IPv4 goes where the route leads, and nothing is checked or counted. */
SEC("xdp")
int pass_least(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct bpf_fib_lookup fib = { .family = 2, .ifindex = xdp->ingress_ifindex };
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);
	__u32 sum;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ttl <= 1)
		return XDP_PASS;
	fib.tos = ip->tos;
	fib.l4_protocol = ip->protocol;
	fib.tot_len = bpf_ntohs(ip->tot_len);
	fib.ipv4_src = ip->saddr;
	fib.ipv4_dst = ip->daddr;
	if (bpf_fib_lookup(xdp, &fib, sizeof(fib), 0))
		return XDP_PASS;
	sum = ip->check + bpf_htons(0x0100);
	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
	__builtin_memcpy(eth->h_dest, fib.dmac, sizeof(eth->h_dest));
	__builtin_memcpy(eth->h_source, fib.smac, sizeof(eth->h_source));
	return bpf_redirect(fib.ifindex, 0);
}

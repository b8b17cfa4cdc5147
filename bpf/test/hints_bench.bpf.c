// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What hints cost, and what a packet costs whose bytes nobody reads. run_... are run by BPF_PROG_TEST_RUN over
 * run_empty; drop_... are attached to an interface, and drop every packet; generate sends packets that are in no cache
 * of the processor when they arrive.
 */
#include "prelude.h"
#include "hints/hints.h"
#include "hints/meta.h"
#include "test/parsed.h"
#include "test/vary.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define KEEP(x) asm volatile("" : : "r"(&(x)) : "memory")

SEC("xdp")
int run_empty(struct xdp_md *xdp)
{
	return XDP_PASS;
}

static __always_inline int run(struct xdp_md *xdp, __u32 want)
{
	struct hints h;

	hints_read(xdp, &h, want, false);
	KEEP(h);
	return XDP_PASS;
}

SEC("xdp")
int run_time(struct xdp_md *xdp)
{
	return run(xdp, HINTS_TIME);
}

SEC("xdp")
int run_hash(struct xdp_md *xdp)
{
	return run(xdp, HINTS_HASH);
}

SEC("xdp")
int run_vlan(struct xdp_md *xdp)
{
	return run(xdp, HINTS_VLAN);
}

/* Left in front of the frame, which the next run takes away: both are one call. */
SEC("xdp")
int run_meta(struct xdp_md *xdp)
{
	int left = xdp->data - xdp->data_meta;
	struct hints_meta *m;

	if (left)
		bpf_xdp_adjust_meta(xdp, left);
	if (bpf_xdp_adjust_meta(xdp, -(int)sizeof(*m)))
		return XDP_DROP;
	m = (void *)(long)xdp->data_meta;
	if ((void *)(m + 1) > (void *)(long)xdp->data)
		return XDP_DROP;
	*m = (struct hints_meta){ .version = HINTS_META_1 };
	return XDP_PASS;
}

/* The programs that drop measure themselves: the clock waits for what was read before. */
const volatile bool timed = false;

struct time_spent {
	__u64 ns;
	__u64 packets;
};
struct time_spent spent; /* by the one processor that receives */

static __always_inline __u64 begin(void)
{
	return timed ? bpf_ktime_get_ns() : 0;
}

static __always_inline int end(__u64 began, int verdict)
{
	if (timed) {
		spent.ns += bpf_ktime_get_ns() - began;
		spent.packets++;
	}
	return verdict;
}

/* The packet is not read. */
SEC("xdp")
int drop_all(struct xdp_md *xdp)
{
	return end(begin(), XDP_DROP);
}

/* A packet of IPv4 and UDP is dropped by its port. */
SEC("xdp")
int drop_parsed(struct xdp_md *xdp)
{
	__u64 began = begin();

	if (!parsed_dns(xdp))
		return XDP_PASS;
	return end(began, XDP_DROP);
}

/* A hash that passes. */
const volatile __u32 passes = 1;

/* What the driver says of the packet decides; it is not read. */
SEC("xdp")
int drop_hinted(struct xdp_md *xdp)
{
	__u64 began = begin();
	struct hints h = {};

	if (!hints_driver_hash(xdp, &h) && h.hash == passes)
		return XDP_PASS;
	return end(began, XDP_DROP);
}

#define ASK_AGAIN 16

/* The driver is asked again and again. */
SEC("xdp")
int drop_asked(struct xdp_md *xdp)
{
	__u64 time = 0;

#pragma clang loop unroll(full)
	for (int i = 0; i < ASK_AGAIN; i++)
		bpf_xdp_metadata_rx_timestamp(xdp, &time);
	KEEP(time);
	return XDP_DROP;
}

/* The interface that frames leave by. */
const volatile __u32 cfg_ifindex = 0;

/* Larger than the second cache of a processor. */
#define EVICT_LINES 65536

struct evict_memory {
	__u64 line[EVICT_LINES][8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct evict_memory);
} evict_memory SEC(".maps");

static long evict_line(__u32 i, void *memory)
{
	struct evict_memory *m = *(struct evict_memory **)memory;

	WHOLE(m->line[i & (EVICT_LINES - 1)][0]);
	return 0;
}

/* The frames of a batch, of which the last one reads so much that the caches lose all of them. */
SEC("xdp")
int generate(struct xdp_md *xdp)
{
	__u32 cpu = bpf_get_smp_processor_id(), zero = 0;
	struct evict_memory *m = bpf_map_lookup_elem(&evict_memory, &zero);

	if (!m || cpu >= SENDERS_MAX || !vary((void *)(long)xdp->data, (void *)(long)xdp->data_end))
		return XDP_ABORTED;
	if (!(senders.cpu[cpu].packets & 63))
		bpf_loop(EVICT_LINES, evict_line, &m, 0);
	return bpf_redirect(cfg_ifindex, 0);
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Turns one test packet into packets of many flows.
 *
 * In: a frame that a test run sends again and again. Out: the same frame with
 * the number of a flow in its source address and source port. Called first by
 * every program of tests and benchmarks, the empty one included.
 */
#ifndef WAYMARK_VARY_H
#define WAYMARK_VARY_H

/* Flows that the packets belong to, one after the other. */
const volatile __u32 cfg_flows = 1;

/* Offsets of the last four octets of the source address, and of its port. */
const volatile __u32 cfg_address = 26;
const volatile __u32 cfg_port = 34;

/* A prime, so coprime to every number of flows below it: each comes up once. */
#define VARY_STRIDE 2654435761ULL

#define SENDERS_MAX 256

/*
 * Packets that each processor has sent, and so the truth that tests compare
 * with. Written by the programs; user space reads it, and sets where to begin.
 */
struct sender {
	__u64 next;
	__u64 pad[7]; /* a cache line for each processor */
} senders[SENDERS_MAX];

/* False where the frame is too short or the processor's number too high. */
static __always_inline bool vary(void *data, void *end)
{
	__u32 cpu = bpf_get_smp_processor_id(), address = cfg_address, port = cfg_port, flow;

	if (cpu >= SENDERS_MAX || data + address + 4 > end || data + port + 2 > end)
		return false;
	flow = senders[cpu].next++ * VARY_STRIDE % cfg_flows;
	*(__be32 *)(data + address) = bpf_htonl(10 << 24 | flow);
	*(__be16 *)(data + port) = bpf_htons(flow);
	return true;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Turns one test packet into packets of many flows.
 *
 * Input: a frame that a test run sends again and again. Output: the same frame with
 * the number of a flow in its source address and source port. Called first by
 * every program of tests and benchmarks, the empty one included.
 */
#ifndef WAYMARK_TEST_VARY_H
#define WAYMARK_TEST_VARY_H

/*
 * What is varied, and how. One struct, so that programs that are measured need
 * not find the place of each word by itself.
 */
const volatile struct {
	/*
	 * Flows that packets belong to, and how far it is from one packet's to the
	 * next's: coprime, so that all come up equally often, and far.
	 */
	__u32 flows;
	__u32 step;
	/* Offset of the last four bytes of the source address, and what is before. */
	__u32 address;
	__u32 before_address;
	/* Offset of the ports, and the destination port as on the wire, shifted up. */
	__u32 ports;
	__u32 destination_port;
} cfg_vary = { .flows = 1 };

#define SENDERS_MAX 256

/*
 * What each CPU sends. Written by the programs; user space sets where to
 * begin, and reads the number of packets: the truth that tests compare with.
 */
struct sender {
	__u64 packets;
	__u64 flow; /* of the next packet */
	__u64 pad[6]; /* a cache line for each CPU */
};

struct all_senders {
	struct sender cpu[SENDERS_MAX];
} senders;

static __always_inline __u32 next_flow(struct sender *s)
{
	__u32 flow = s->flow, next = flow + cfg_vary.step;

	s->packets++;
	s->flow = next < cfg_vary.flows ? next : next - cfg_vary.flows;
	return flow;
}

/*
 * False where the frame is too short or the processor's number too high. The
 * stores are as wide as the loads of a parser: joining two stores for one load
 * takes a time that no packet from elsewhere costs.
 */
static __always_inline bool vary(void *data, void *end)
{
	__u32 cpu = bpf_get_smp_processor_id(), flow;
	void *address = data + cfg_vary.address, *ports = data + cfg_vary.ports;

	if (cpu >= SENDERS_MAX || address + 4 > end || ports + 4 > end)
		return false;
	flow = next_flow(&senders.cpu[cpu]);
	*(__u64 *)(address - 4) = (__u64)bpf_htonl(10 << 24 | flow) << 32 | cfg_vary.before_address;
	*(__u32 *)ports = bpf_htons(flow) | cfg_vary.destination_port;
	return true;
}

#endif

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What transit costs at tc. Programs that are run by BPF_PROG_TEST_RUN, again and again on one packet, so
 * each first makes its trace empty again; so does the program that they are compared with.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "mark/clock.h"
#include "probe.h"
#include "test/ioam_again.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int bench_empty(struct __sk_buff *skb)
{
	return again((void *)(long)skb->data, (void *)(long)skb->data_end) ? TC_ACT_UNSPEC
									   : TC_ACT_SHOT;
}

/* The packet arrives. */
SEC("tc")
int bench_transit(struct __sk_buff *skb)
{
	if (!again((void *)(long)skb->data, (void *)(long)skb->data_end))
		return TC_ACT_SHOT;
	ioam_ingress(skb);
	return ioam_finish(skb, TC_ACT_UNSPEC);
}

/* The packet arrives, and leaves by the same interface. */
SEC("tc")
int bench_through(struct __sk_buff *skb)
{
	if (!again((void *)(long)skb->data, (void *)(long)skb->data_end))
		return TC_ACT_SHOT;
	ioam_ingress(skb);
	if (ioam_finish(skb, TC_ACT_UNSPEC) == TC_ACT_SHOT)
		return TC_ACT_SHOT;
	ioam_egress(skb);
	return TC_ACT_UNSPEC;
}

/* All stages of tc ingress. */
SEC("tc")
int bench_ingress(struct __sk_buff *skb)
{
	if (!again((void *)(long)skb->data, (void *)(long)skb->data_end))
		return TC_ACT_SHOT;
	return probe(skb, DIRECTION_INGRESS);
}

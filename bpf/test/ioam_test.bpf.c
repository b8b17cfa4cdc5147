// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Programs that are run by BPF_PROG_TEST_RUN and never attached: a packet's way through a node, in at
 * one interface and out at another, in one run.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "mark/clock.h"
#include "probe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Interface where the packet leaves, as in flow_slot. */
volatile __u32 test_out SEC(".data.test");

/* Tc ingress, with all stages. */
SEC("tc")
int test_in(struct __sk_buff *skb)
{
	return probe(skb, DIRECTION_INGRESS);
}

/* Tc egress, with all stages. */
SEC("tc")
int test_leave(struct __sk_buff *skb)
{
	return probe(skb, DIRECTION_EGRESS);
}

/* Tc ingress and, as if the packet were forwarded, tc egress. */
SEC("tc")
int test_through(struct __sk_buff *skb)
{
	__u32 out = test_out;
	struct ioam_iface *known;
	struct ioam_work *w;
	__u32 l3;

	ioam_ingress(skb);
	if (ioam_finish(skb, TC_ACT_UNSPEC) == TC_ACT_SHOT)
		return TC_ACT_SHOT;
	if (skb->tstamp_type != BPF_SKB_TSTAMP_DELIVERY_MONO || !ioam_has_options(skb, &l3))
		return TC_ACT_UNSPEC;
	w = ioam_begin(skb, l3);
	known = bpf_map_lookup_elem(&ioam_ifaces, &out);
	if (!w || !known)
		return TC_ACT_UNSPEC;
	w->port = known->copy[w->copy & 1];
	w->received = skb->tstamp;
	if (ioam_complete_usual(skb, w) != IOAM_COMPLETED && ioam_complete(skb, w) != IOAM_PASS)
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

/* Writes into a gap directly after the IPv6 header of the frame; the packet stays otherwise. */
volatile __u32 test_form SEC(".data.test");
volatile __u32 test_at SEC(".data.test");

/* Chooses and writes. 0: written; 1: not chosen; 2: not written. */
SEC("tc")
int test_insert(struct __sk_buff *skb)
{
	const struct ioam_insertion *in;
	struct packet *p = batch_spare();
	struct ioam_work *w;

	w = IOAM_CPU(struct ioam_work, work);
	if (!w || !p || parse(skb, DIRECTION_EGRESS, p) != PARSE_OK)
		return 3;
	p->hash = hash_flow(&p->id);
	w->received = 0;
	in = ioam_choose(skb, p, w);
	if (!in)
		return 1;
	if (ioam_write(skb, w, in, test_form, test_at))
		return 2;
	ioam_inserted(in, p);
	return 0;
}

/* Adds the traces of a packet to their paths; the packet stays. */
SEC("tc")
int test_collect(struct __sk_buff *skb)
{
	struct ioam_work *w;
	__u32 l3;

	if (!ioam_has_options(skb, &l3))
		return TC_ACT_SHOT;
	w = ioam_begin(skb, l3);
	if (!w)
		return TC_ACT_SHOT;
	ioam_collect(skb, w);
	return TC_ACT_UNSPEC;
}

/* What the other programs are compared with. */
SEC("tc")
int test_empty(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

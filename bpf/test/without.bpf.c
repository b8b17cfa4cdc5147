// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The probe as it would be without its optional features: their knobs are
 * fixed when this is compiled. Benchmarks hold the program with the features
 * switched off against it.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#define cfg_features 0
#include "mark/clock.h"
#include "probe.h"
#include "test/vary.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int bench_without(struct __sk_buff *skb)
{
	if (!vary((void *)(long)skb->data, (void *)(long)skb->data_end))
		return TC_ACT_SHOT;
	probe(skb, DIRECTION_INGRESS);
	return TC_ACT_UNSPEC;
}

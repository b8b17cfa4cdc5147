// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The hook at ingress with a clock that tests set; see pdm_test.bpf.c. Apart, as
 * the hooks are: the compiler makes of each what it is for one direction.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "test/pdm_clock.h"
#include "probe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int test_ingress(struct __sk_buff *skb)
{
	return probe(skb, DIRECTION_INGRESS);
}

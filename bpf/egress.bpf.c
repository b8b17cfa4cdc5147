// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The program at tc egress. */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "mark/clock.h"
#include "probe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int waymark_egress(struct __sk_buff *skb)
{
	return probe(skb, DIRECTION_EGRESS);
}

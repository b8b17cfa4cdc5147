// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The programs at tc. One object: they share most functions. */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "mark/clock.h"
#include "probe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int waymark_ingress(struct __sk_buff *skb)
{
	return probe(skb, DIRECTION_INGRESS);
}

SEC("tc")
int waymark_egress(struct __sk_buff *skb)
{
	return probe(skb, DIRECTION_EGRESS);
}

/* Brings types into the debug information that the Go ones are made from. */
struct abi {
	enum direction direction;
	enum l2 l2;
	enum tunnel tunnel;
	enum meta meta;
	enum reason_class reason_class;
	enum hash_keys hash_keys;
	enum opening opening;
	enum feature feature;
	struct flow_chunk flow_chunk;
	struct flow_evicted flow_evicted;
	struct flow_batch flow_batch;
};
const struct abi *const abi __attribute__((unused));

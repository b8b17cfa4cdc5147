// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The two parsers side by side, run by BPF_PROG_TEST_RUN and never
 * attached: what parse_fast() takes, parse() has to find just so. And whether a
 * packet would be counted by the first slot that is looked at.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "mark/clock.h"
#include "probe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* What a frame is to the two; user space has the names of the values. */
enum parsers {
	PARSERS_SLOW = 0, /* parse_fast() leaves the frame to parse() */
	PARSERS_AGREE,
	PARSERS_REASON, /* parse() has a reason to count no flow */
	PARSERS_IDENTITY, /* here and below: both took it, and differ in this */
	PARSERS_COUNTS,
	PARSERS_RARE,
	PARSERS_OFFSETS,
};

/* Too much for the stack together. */
struct packet parsed_fast SEC(".data.parsed"), parsed_slow SEC(".data.parsed");

static __always_inline int compare(const struct packet *a, const struct packet *b)
{
	/* In words up to the last, the half of which is a time. */
	for (int i = 0; i < WORD_COUNTS; i++) {
		if (a->word[i] != b->word[i])
			return PARSERS_IDENTITY;
	}
	if (a->word[WORD_COUNTS] != b->word[WORD_COUNTS] || a->id.payload != b->id.payload)
		return PARSERS_COUNTS;
	if (!a->rare != !b->rare || a->overhead != b->overhead || a->flow_label != b->flow_label ||
	    a->gso_packets != b->gso_packets || a->gso_bytes != b->gso_bytes || a->vni != b->vni ||
	    a->tcp_flags_high != b->tcp_flags_high || a->fragment != b->fragment)
		return PARSERS_RARE;
	if (a->l4_offset != b->l4_offset ||
	    (cfg_features & FEATURE_PDM &&
	     (a->l3_offset != b->l3_offset || a->l4_len != b->l4_len)))
		return PARSERS_OFFSETS;
	return PARSERS_AGREE;
}

SEC("tc")
int test_parsers(struct __sk_buff *skb)
{
	if (!parse_fast(skb, DIRECTION_INGRESS, cfg_features, &parsed_fast))
		return PARSERS_SLOW;
	if (parse(skb, DIRECTION_INGRESS, &parsed_slow) != PARSE_OK)
		return PARSERS_REASON;
	return compare(&parsed_fast, &parsed_slow);
}

/* 1 where it was counted, with which tests say that it would be again. */
SEC("tc")
int test_hit(struct __sk_buff *skb)
{
	struct packet *p = batch_spare();
	struct flow_batch *batch = current_batch();
	struct flow_slot *chunk;
	__u32 number;

	if (!p || !batch || parse(skb, DIRECTION_INGRESS, p) != PARSE_OK)
		return 0;
	p->hash = hash_flow(&p->id);
	number = slot_number(p->hash_high, part_slots(batch));
	chunk = chunk_of(batch, number);
	return chunk && flow_hit(slot_at(chunk, number, chunk_mask()), p);
}

/* Brings the type into the debug information that the Go one is made from. */
const enum parsers *const outcomes __attribute__((unused));

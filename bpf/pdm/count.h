/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets that PDM passes over, by interface, direction and reason.
 *
 * Input: the packet's context and a reason. Output: one more in the map `pdm_counts`.
 * Called from every exit of the PDM stages that is not "marked" or "read".
 */
#ifndef WAYMARK_PDM_COUNT_H
#define WAYMARK_PDM_COUNT_H

#include "element.h"

/*
 * Written by the programs, read by the agent; running totals, never cleared;
 * count_key.reason is an enum pdm_reason. When full, pdm_totals.counts_full
 * counts on.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct count_key);
	__type(value, struct count_value);
} pdm_counts SEC(".maps");

static __noinline int pdm_count(struct __sk_buff *skb, __u32 direction, __u32 reason)
{
	struct count_key key = {
		.iface = iface_of(skb),
		.direction = direction,
		.reason = reason,
	};
	struct count_value *value, first = {};

	value = find_or_make(&pdm_counts, &key, &first);
	if (!value) {
		PDM_STAT_ADD(counts_full, 1);
		return 0;
	}
	value->packets += segments_of(skb);
	value->frames++;
	value->bytes += skb->len;
	return 0;
}

#endif

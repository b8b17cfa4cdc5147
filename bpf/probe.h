/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The stages of the flow probe at a tc hook, in order. Who includes this has
 * config.h and a clock for PDM before it.
 */
#ifndef WAYMARK_PROBE_H
#define WAYMARK_PROBE_H

#include "frame_tc.h"
#include "hash.h"
#include "dissect.h"
#include "fast.h"
#include "flow/handshake.h"
#include "flow/flow.h"
#include "flow/batch.h"
#include "sample.h"
#include "match.h"
#include "gate/capture_tc.h"
#include "gate/gate.h"
#include "gate/run_tc.h"
#include "mark/mark.h"
#include "ioam/ioam.h"
#include "ioam/choose.h"
#include "ioam/write.h"
#include "ioam/echo.h"
#include "ioam/flow.h"
#include "ioam/wrap.h"
#include "ioam/insert.h"
#include "ioam/error.h"
#include "pdm/pdm.h"
#include "ioam/grow.h"
#include "ioam/hops.h"
#include "ioam/path.h"
#include "ioam/end.h"
#include "ioam/path_flow.h"
#include "ioam/edge.h"
#include "ioam/tunnel.h"
#include "ioam/remove.h"
#include "ioam/export.h"
#include "ioam/loopback.h"
#include "ioam/direct.h"
#include "ioam/ingress.h"
#include "ioam/egress.h"

/* All stages of a hook, in order. The verdict is TC_ACT_UNSPEC, or what PDM says. */
static __always_inline int stages(struct __sk_buff *skb, __u32 direction, __u32 features,
				  bool recorded)
{
	bool sampled = recorded && is_sampled(features), marked = false;
	enum reason uncounted = sampled	   ? REASON_CPU_UNKNOWN
				: recorded ? REASON_SAMPLED_OUT
					   : REASON_NO_FLOW;
	struct flow_batch *batch = sampled ? current_batch() : NULL;
	/* Read once: the agent may change it while the packet is here. */
	bool inserts = false;
	int rc, verdict = TC_ACT_UNSPEC;
	struct packet *p;

	if (features & FEATURE_IOAM)
		inserts = ioam_inserts();
	if (!batch && !(features & FEATURE_PDM) && !(features & FEATURE_IOAM && inserts)) {
		count(skb, direction, uncounted);
		return TC_ACT_UNSPEC;
	}
	p = batch ? batch_next(batch) : batch_spare();
	if (!p)
		return TC_ACT_UNSPEC;
	if (!parse_fast(skb, direction, features, p)) {
		rc = is_arp(skb, features) ? REASON_ARP : parse(skb, direction, p);
		if (rc != PARSE_OK) {
			count(skb, direction, batch ? rc : uncounted);
			return TC_ACT_UNSPEC;
		}
	}
	p->hash = hash_flow(&p->id);
	if (features & FEATURE_IOAM && direction == DIRECTION_EGRESS && inserts)
		ioam_insert(skb, p);
	else if (features & FEATURE_IOAM && direction == DIRECTION_INGRESS && inserts &&
		 error_type(p))
		ioam_error(skb, p);
	if (features & FEATURE_PDM && direction == DIRECTION_EGRESS) {
		verdict = pdm_mark(skb, p);
		if (verdict != TC_ACT_UNSPEC)
			return verdict;
	} else if (features & FEATURE_PDM) {
		marked = pdm_read(skb, p);
	}
	if (features & FEATURE_IOAM && direction == DIRECTION_EGRESS && inserts) {
		verdict = ioam_insert_rest(skb, p);
		if (verdict == IOAM_PLACED)
			verdict = ioam_write_placed(skb, p);
		if (verdict != TC_ACT_UNSPEC)
			return verdict;
	}
	if (batch)
		handshake(skb, batch, p);
	else
		count(skb, direction, uncounted);
	if (features & FEATURE_IOAM && direction == DIRECTION_INGRESS)
		ioam_link_flow(p);
	if (features & FEATURE_PDM && direction == DIRECTION_INGRESS &&
	    !(features & FEATURE_IOAM && ioam_take_pdm(marked)))
		verdict = pdm_strip(skb, p, marked);
	if (batch)
		batch_keep(batch);
	return verdict;
}

/* Most hooks need none of the features: their packets don't look for them. */
static __always_inline int probe(struct __sk_buff *skb, __u32 direction)
{
	__u32 features = cfg_features;
	__u8 marks = 0;
	int verdict;

	if (!features)
		return stages(skb, direction, 0, true);
	if (features & FEATURE_GATE && direction == DIRECTION_INGRESS) {
		verdict = gate_verdict(skb, NULL, gate_run_tc(skb), &marks);
		if (verdict != GATE_PASS)
			return verdict == GATE_ANSWER ? frame_send_back(skb) : TC_ACT_SHOT;
	}
	if (features & FEATURE_IOAM && direction == DIRECTION_EGRESS) {
		verdict = ioam_egress(skb);
		if (verdict != TC_ACT_UNSPEC)
			return verdict;
	} else if (features & FEATURE_IOAM) {
		ioam_ingress(skb);
	}
	verdict = stages(skb, direction, features, !(marks & GATE_MARK_NO_FLOW));
	if (features & FEATURE_IOAM && direction == DIRECTION_INGRESS)
		verdict = ioam_finish(skb, verdict);
	return verdict;
}

#endif

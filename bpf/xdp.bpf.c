// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The program at XDP. */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "frame_xdp.h"
#include "hash.h"
#include "ipv4.h"
#include "dissect.h"
#include "fast.h"
#include "sample.h"
#include "flow/handshake.h"
#include "flow/flow.h"
#include "flow/batch.h"
#include "hints/hints.h"
#include "hints/observe.h"
#include "gate/capture_xdp.h"
#include "gate/gate.h"
#include "gate/quick.h"
#include "gate/unasked.h"
#include "hints/pass.h"
#include "ioam/ioam.h"
#include "ioam/xdp.h"
#include "forward/forward.h"
#include "balance/balance.h"
#include "dry.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp.frags")
int waymark_xdp(struct xdp_md *xdp)
{
	struct gate_place place;
	bool left = false;
	int verdict;
	__u8 marks = 0;

	if (cfg_features & (FEATURE_BALANCE | FEATURE_FORWARD) && xdp->data_meta != xdp->data &&
	    dry_run(xdp))
		return XDP_DROP;
	hints_observe(xdp);
	if (cfg_features & FEATURE_GATE &&
	    (gate_again(xdp, &place) || gate_drop_like_flow(xdp, &place)))
		return XDP_DROP;
	if (cfg_features & FEATURE_GATE) {
		verdict = gate_verdict(xdp, &place, gate_run_xdp(xdp, place.part), &marks);
		if (verdict != GATE_PASS)
			return verdict == GATE_ANSWER ? frame_send_back(xdp) : XDP_DROP;
		if (cfg_features & FEATURE_META && hints_tap(xdp, marks) == XDP_REDIRECT)
			return XDP_REDIRECT;
	}
	if (cfg_features & FEATURE_IOAM)
		left = ioam_xdp(xdp);
	if (cfg_features & FEATURE_BALANCE && !left) {
		verdict = balance(xdp, marks & GATE_MARK_NO_FLOW);
		if (verdict != XDP_PASS)
			return verdict;
	}
	if (cfg_features & FEATURE_FORWARD && !left) {
		verdict = forward(xdp, marks & GATE_MARK_NO_FLOW);
		if (verdict != XDP_PASS)
			return verdict;
	}
	if (cfg_features & FEATURE_META)
		return hints_pass_on(xdp, left);
	return XDP_PASS;
}

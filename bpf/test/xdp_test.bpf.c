// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Flow accounting at XDP, run by BPF_PROG_TEST_RUN and never attached: all that
 * reads frames works at both hooks. The stages are those of probe.h without PDM,
 * which changes packets.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "frame_xdp.h"
#include "hash.h"
#include "dissect.h"
#include "fast.h"
#include "flow/handshake.h"
#include "flow/flow.h"
#include "flow/batch.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline int account(struct xdp_md *xdp)
{
	struct flow_batch *batch = current_batch();
	struct packet *p;
	int rc;

	if (!batch) {
		count(xdp, DIRECTION_INGRESS, REASON_CPU_UNKNOWN);
		return XDP_PASS;
	}
	p = batch_next(batch);
	if (!parse_fast(xdp, DIRECTION_INGRESS, cfg_features, p)) {
		rc = parse(xdp, DIRECTION_INGRESS, p);
		if (rc != PARSE_OK) {
			count(xdp, DIRECTION_INGRESS, rc);
			return XDP_PASS;
		}
	}
	p->hash = hash_flow(&p->id);
	handshake(xdp, batch, p);
	batch_keep(batch);
	return XDP_PASS;
}

/* A frame in one buffer. */
SEC("xdp")
int test_xdp(struct xdp_md *xdp)
{
	return account(xdp);
}

/* A frame in several. */
SEC("xdp.frags")
int test_xdp_frags(struct xdp_md *xdp)
{
	return account(xdp);
}

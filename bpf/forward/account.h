/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Forwarded packets in the flow table: they pass neither tc hook, and so have to be counted here, as they
 * would be there.
 *
 * Input: a parsed packet that is going to be forwarded, and both interfaces. Output: a flow at the ingress of one
 * and a flow at the egress of the other count it. Both have L2_FORWARDED, and in place of a tunnel's
 * network the interface on the other side. Called by forward.h.
 */
#ifndef WAYMARK_FORWARD_ACCOUNT_H
#define WAYMARK_FORWARD_ACCOUNT_H

/* A packet that is not in the flows of an interface. */
static __always_inline void forward_uncounted(__u32 iface, __u32 direction, enum reason reason,
					      __u32 bytes)
{
	struct count_value one = { .packets = 1, .frames = 1, .bytes = bytes };

	if (!count_cached(iface, direction, reason, &one))
		count_many(iface, direction, reason, &one);
}

/*
 * The packet is in the batch. The hash is that of other packets of the flow: with it, handshakes are recognized.
 * other: the interface on the other side; 0: the packet goes no further.
 */
static __always_inline void forward_keep(frame_ctx *xdp, struct flow_batch *batch, struct packet *p,
					 __u32 other)
{
	p->hash = hash_flow(&p->id);
	handshake(xdp, batch, p);
	if (other) {
		p->id.meta ^= (L2_ETHER ^ L2_FORWARDED) << META_L2_SHIFT;
		p->vni = other;
	}
	if (++batch->waiting >= FLOW_BATCH)
		batch_count_twice(batch);
}

/* p: at the end of the batch. bytes: of the frame as it leaves. */
static __always_inline void forward_account(frame_ctx *xdp, struct flow_batch *batch,
					    struct packet *p, __u32 out, __u32 bytes, bool recorded)
{
	__u32 in = p->id.iface;
	struct packet *q = p;

	if (!recorded || !is_sampled(cfg_features)) {
		forward_uncounted(in, DIRECTION_INGRESS,
				  recorded ? REASON_SAMPLED_OUT : REASON_NO_FLOW,
				  bytes + p->overhead);
	} else {
		forward_keep(xdp, batch, p, out);
		q = batch_next(batch);
		*q = *p;
		q->id.meta ^= (L2_ETHER ^ L2_FORWARDED) << META_L2_SHIFT;
	}
	if (!is_sampled(cfg_features)) {
		forward_uncounted(out, DIRECTION_EGRESS, REASON_SAMPLED_OUT, bytes);
		return;
	}
	q->id.iface = out;
	q->id.meta |= DIRECTION_EGRESS << META_DIRECTION_SHIFT;
	q->id.ttl--;
	q->overhead = 0; /* padding does not leave */
	q->opening = 0;
	q->rtt_responder = q->rtt_initiator = 0;
	forward_keep(xdp, batch, q, in);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Balanced packets in the flow table, as those that are forwarded: a flow at the ingress of one interface, and the flow that
 * its outer header is of at the egress of the other.
 *
 * Input: a parsed packet, and what became of it. Output: flows count it. Called by balance.h.
 */
#ifndef WAYMARK_BALANCE_ACCOUNT_H
#define WAYMARK_BALANCE_ACCOUNT_H

/* The packet as it leaves, behind its outer header. */
static __always_inline void balance_outside(struct packet *q, const struct balance_view *v,
					    const struct balance_backend *b)
{
	__u32 meta = DIRECTION_EGRESS << META_DIRECTION_SHIFT | L2_ETHER << META_L2_SHIFT;

	q->id.iface = cfg_iface + v->ifindex;
	q->overhead = 0; /* padding does not leave */
	q->opening = 0;
	q->rtt_responder = q->rtt_initiator = 0;
	if (!v->added) {
		q->id.meta |= DIRECTION_EGRESS << META_DIRECTION_SHIFT;
		return;
	}
	__builtin_memcpy(q->id.saddr, b->source, 16);
	__builtin_memcpy(q->id.daddr, b->addr, 16);
	q->id.sport = q->id.dport = 0;
	q->id.meta = meta | b->ipv6 << META_IPV6_SHIFT;
	q->id.payload = q->id.bytes;
	q->id.bytes += v->added;
	q->id.ttl = BALANCE_TTL;
	q->id.tcp_flags = 0;
	q->tcp_flags_high = 0;
	q->flow_label = 0;
	q->fragment = 0;
}

/* Of the packet as it came, before it is written over. */
static __always_inline __u8 balance_outer_proto(const struct balance_backend *b,
						const struct packet *p)
{
	return b->forwarding == BALANCE_GUE ? IPPROTO_UDP : balance_inner_proto(p);
}

static __always_inline void balance_arrived(frame_ctx *xdp, struct flow_batch *batch,
					    struct packet *p, __u32 out, bool recorded)
{
	if (recorded && is_sampled(cfg_features))
		forward_keep(xdp, batch, p, out);
	else
		forward_uncounted(p->id.iface, DIRECTION_INGRESS,
				  recorded ? REASON_SAMPLED_OUT : REASON_NO_FLOW,
				  sizeof(struct ethhdr) + p->id.bytes + p->overhead);
}

/* p: at the end of the batch. It leaves for a backend. */
static __always_inline void balance_account(frame_ctx *xdp, const struct balance_view *v,
					    const struct balance_backend *b,
					    struct flow_batch *batch, struct packet *p,
					    bool recorded)
{
	__u32 in = p->id.iface, bytes = sizeof(struct ethhdr) + v->added + p->id.bytes;
	struct packet *spare = batch_spare(), *q;

	if (!spare)
		return;
	*spare = *p;
	spare->id.proto = v->added ? balance_outer_proto(b, p) : p->id.proto;
	balance_arrived(xdp, batch, p, cfg_iface + v->ifindex, recorded);
	if (!is_sampled(cfg_features)) {
		forward_uncounted(cfg_iface + v->ifindex, DIRECTION_EGRESS, REASON_SAMPLED_OUT,
				  bytes);
		return;
	}
	q = batch_next(batch);
	*q = *spare;
	balance_outside(q, v, b);
	forward_keep(xdp, batch, q, in);
}

/* It goes no further; sent: an answer leaves in its place, of so many bytes. */
static __always_inline void balance_ended(frame_ctx *xdp, struct flow_batch *batch,
					  struct packet *p, __u32 sent, bool recorded)
{
	__u32 in = p->id.iface;

	balance_arrived(xdp, batch, p, 0, recorded);
	if (sent)
		forward_uncounted(in, DIRECTION_EGRESS, REASON_ANSWERED_BY_RULE, sent);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Balanced packets in the flow table, as those that are forwarded: a flow at the ingress of one interface, and the flow that
 * its outer header is of at the egress of the other.
 *
 * Input: a parsed packet, and what became of it. Output: flows count it. Called by balance.h.
 */
#ifndef WAYMARK_BALANCE_ACCOUNT_H
#define WAYMARK_BALANCE_ACCOUNT_H

/* The packet as it leaves, behind its outer header. Its protocol is set already. */
static __always_inline void balance_outside(struct packet *q, const struct balance_view *v,
					    const struct balance_backend *b)
{
	forward_turn(q, v->ifindex, 0);
	__builtin_memcpy(q->id.saddr, b->source, 16);
	__builtin_memcpy(q->id.daddr, b->addr, 16);
	q->id.sport = q->id.dport = 0;
	q->id.meta = DIRECTION_EGRESS << META_DIRECTION_SHIFT | b->ipv6 << META_IPV6_SHIFT |
		     L2_ETHER << META_L2_SHIFT;
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

/* out: index of the interface by which it leaves; 0: it goes no further. */
static __always_inline void balance_arrived(frame_ctx *xdp, struct flow_batch *batch,
					    struct packet *p, __u32 out, bool recorded)
{
	if (recorded && is_sampled(cfg_features))
		forward_keep_one(xdp, batch, p, out);
	else
		count_some(p->id.iface, DIRECTION_INGRESS,
			   recorded ? REASON_SAMPLED_OUT : REASON_NO_FLOW, 1, 1,
			   sizeof(struct ethhdr) + p->id.bytes + p->overhead);
}

/* It leaves behind an outer header: as a packet of another flow. */
static __always_inline void balance_account_outer(frame_ctx *xdp, const struct balance_view *v,
						  const struct balance_backend *b,
						  struct flow_batch *batch, struct packet *p,
						  bool recorded)
{
	struct packet *spare = batch_spare(), *q;
	__u32 in = p->id.iface - cfg_iface;

	if (!spare)
		return;
	*spare = *p;
	spare->id.proto = balance_outer_proto(b, p);
	balance_arrived(xdp, batch, p, v->ifindex, recorded);
	if (!is_sampled(cfg_features)) {
		count_some(cfg_iface + v->ifindex, DIRECTION_EGRESS, REASON_SAMPLED_OUT, 1, 1,
			   sizeof(struct ethhdr) + v->added + spare->id.bytes);
		return;
	}
	q = batch_next(batch);
	*q = *spare;
	balance_outside(q, v, b);
	forward_keep_one(xdp, batch, q, in);
}

/* p: at the end of the batch. It leaves for a backend. */
static __always_inline void balance_account(frame_ctx *xdp, const struct balance_view *v,
					    const struct balance_backend *b,
					    struct flow_batch *batch, struct packet *p,
					    bool recorded)
{
	if (v->added) {
		balance_account_outer(xdp, v, b, batch, p, recorded);
		return;
	}
	p->hash = hash_flow(&p->id);
	forward_account(xdp, batch, p, v->ifindex, 0, sizeof(struct ethhdr) + p->id.bytes,
			recorded);
}

/* It goes no further; sent: an answer leaves in its place, of so many bytes. */
static __always_inline void balance_ended(frame_ctx *xdp, struct flow_batch *batch,
					  struct packet *p, __u32 sent, bool recorded)
{
	__u32 in = p->id.iface;

	balance_arrived(xdp, batch, p, 0, recorded);
	if (sent)
		count_some(in, DIRECTION_EGRESS, REASON_ANSWERED_BY_RULE, 1, 1, sent);
}

#endif

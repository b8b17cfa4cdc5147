/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Forwarded packets in the flow table: they pass neither tc hook, and so have to be counted here, as they
 * would be there.
 *
 * Input: a parsed packet that is going to be forwarded, and both interfaces. Output: a flow at the ingress of one
 * and a flow at the egress of the other count it. Both have L2_FORWARDED, and in place of tags the interface on the
 * other side. As a rule one slot is that of both flows, since they differ in little: the agent makes two of it
 * (internal/datapath/both.go). Where frames have a tag, each flow has a slot; that with the tag has the other interface where
 * others have a tunnel's network. Called by forward.h and by balance/.
 */
#ifndef WAYMARK_FORWARD_ACCOUNT_H
#define WAYMARK_FORWARD_ACCOUNT_H

/* Round trips of one handshake that differ by less at both interfaces, in ns, differ by what programs take. */
#define FORWARD_SAME_TIME 4096

/* The packet is in the batch. meta: of its interface on the other side, and more. */
static __always_inline void forward_keep(struct flow_batch *batch, struct packet *p, __u32 meta)
{
	if (meta)
		p->id.meta = (p->id.meta ^ (L2_ETHER ^ L2_FORWARDED) << META_L2_SHIFT) | meta;
	if (++batch->waiting >= FLOW_BATCH)
		batch_count_twice(batch);
}

/*
 * The packet at one interface. The hash is that of other packets of the flow: with it, handshakes are recognized.
 * other: index of the interface on the other side; 0: the packet goes no further.
 */
static __always_inline void forward_keep_one(frame_ctx *xdp, struct flow_batch *batch,
					     struct packet *p, __u32 other)
{
	p->hash = hash_flow(&p->id);
	handshake(xdp, batch, p);
	forward_keep(batch, p, other << META_OTHER_SHIFT);
}

/* The packet as it leaves. aged: its TTL is lower by one, or 0. */
static __always_inline void forward_turn(struct packet *p, __u32 out, __u32 aged)
{
	p->id.iface = cfg_iface + out;
	p->id.meta |= DIRECTION_EGRESS << META_DIRECTION_SHIFT;
	p->id.ttl -= aged;
	p->overhead = 0; /* padding does not leave */
	p->opening = 0;
	p->rtt_responder = p->rtt_initiator = 0;
}

/* Whether both interfaces have a round trip, and the same, or none has. */
static __always_inline bool forward_agrees(__u32 one, __u32 other)
{
	return one && other ? one - other + FORWARD_SAME_TIME < 2 * FORWARD_SAME_TIME
			    : one == other;
}

/*
 * p: hashed, and may be part of a handshake, which is recognized at each of the interfaces. Not 0 where these differ in
 * what they see of it: q is the packet as it leaves. Verified alone.
 */
__feature(FEATURE_FORWARD | FEATURE_BALANCE) __noinline
	int forward_handshake(frame_ctx *xdp, struct packet *p, struct packet *q, __u32 both)
{
	if (!p || !q)
		return 0;
	*q = *p;
	forward_turn(q, both >> META_OTHER_SHIFT & ((1U << IFACE_NETNS_SHIFT) - 1),
		     both >> META_AGED_SHIFT & 1);
	q->hash = hash_flow(&q->id);
	handshake_step(xdp, p);
	if (q->id.tcp_flags & TCP_SYN || is_expected(q))
		handshake_step(xdp, q);
	return !forward_agrees(p->rtt_responder, q->rtt_responder) ||
	       !forward_agrees(p->rtt_initiator, q->rtt_initiator);
}

/* p: hashed, at the end of the batch, counted in the flows of both interfaces. aged: 1, its TTL is lowered; or 0. */
static __always_inline void forward_keep_both(frame_ctx *xdp, struct flow_batch *batch,
					      struct packet *p, __u32 out, __u32 aged)
{
	__u32 both = out << META_OTHER_SHIFT | 1U << META_BOTH_SHIFT | aged << META_AGED_SHIFT;
	__u32 in = p->id.iface - cfg_iface;
	struct packet *q;

	if (!(p->id.tcp_flags & (TCP_SYN | TCP_ACK))) {
		first_packet(batch, p);
	} else if (p->id.tcp_flags & TCP_SYN || is_expected(p)) {
		q = batch_spare();
		if (q && forward_handshake(xdp, p, q, both)) {
			forward_keep(batch, p, out << META_OTHER_SHIFT);
			p = batch_next(batch);
			*p = *q;
			both = in << META_OTHER_SHIFT;
		}
	}
	forward_keep(batch, p, both);
}

/*
 * p: hashed, at the end of the batch; it leaves by another interface, of this index. bytes: of the frame as it leaves.
 * recorded: rules do not say that there is no record of it where it arrived.
 */
static __always_inline void forward_account(frame_ctx *xdp, struct flow_batch *batch,
					    struct packet *p, __u32 out, __u32 aged, __u32 bytes,
					    bool recorded)
{
	bool sampled = is_sampled(cfg_features);
	__u32 in = p->id.iface;

	if (sampled && recorded) {
		forward_keep_both(xdp, batch, p, out, aged);
		return;
	}
	count_some(in, DIRECTION_INGRESS, recorded ? REASON_SAMPLED_OUT : REASON_NO_FLOW, 1, 1,
		   bytes + p->overhead);
	if (!sampled) {
		count_some(cfg_iface + out, DIRECTION_EGRESS, REASON_SAMPLED_OUT, 1, 1, bytes);
		return;
	}
	forward_turn(p, out, aged);
	forward_keep_one(xdp, batch, p, in - cfg_iface);
}

/*
 * As forward_account(), of a packet that a flow table translates: it is of one flow where it arrives, and of another one where
 * it leaves.
 */
static __always_inline void forward_account_offloaded(frame_ctx *xdp, const struct forward_view *v,
						      struct flow_batch *batch, struct packet *p,
						      __u32 out, bool recorded)
{
	struct packet *spare = batch_spare(), *q;
	bool sampled = is_sampled(cfg_features);
	__u32 in = p->id.iface, bytes = sizeof(struct ethhdr) + v->total;

	if (!spare)
		return;
	*spare = *p;
	if (sampled && recorded)
		forward_keep_one(xdp, batch, p, out);
	else
		count_some(in, DIRECTION_INGRESS, recorded ? REASON_SAMPLED_OUT : REASON_NO_FLOW, 1,
			   1, bytes + spare->overhead);
	if (!sampled) {
		count_some(cfg_iface + out, DIRECTION_EGRESS, REASON_SAMPLED_OUT, 1, 1, bytes);
		return;
	}
	q = batch_next(batch);
	*q = *spare;
	forward_turn(q, out, 1);
	__builtin_memcpy(q->id.saddr, v->behind.saddr, 16);
	__builtin_memcpy(q->id.daddr, v->behind.daddr, 16);
	q->id.sport = v->behind.sport;
	q->id.dport = v->behind.dport;
	forward_keep_one(xdp, batch, q, in - cfg_iface);
}

/*
 * A packet whose frame has a tag at either interface, in the spare packet: at one of them. Its handshake is the one that tc sees.
 * Verified alone.
 */
__feature(FEATURE_FORWARD) __noinline
	int forward_keep_tagged(frame_ctx *xdp, struct forward_view *v, __u32 direction)
{
	struct flow_batch *batch = current_batch();
	struct packet *p, *spare = batch_spare();
	__u32 vid, other;

	if (!v || !batch || !spare)
		return 0;
	p = batch_next(batch);
	*p = *spare;
	vid = v->in.vid;
	other = v->out;
	if (direction == DIRECTION_EGRESS) {
		vid = v->leaves.vid;
		other = iface_of(xdp);
		forward_turn(p, v->out - cfg_iface, 1);
	}
	if (!vid) {
		forward_keep_one(xdp, batch, p, other - cfg_iface);
		return 0;
	}
	p->id.meta ^= (L2_ETHER ^ L2_TAG_ACCEL) << META_L2_SHIFT | vid << META_VLAN_SHIFT;
	p->vni = other;
	p->hash = hash_flow(&p->id);
	handshake(xdp, batch, p);
	p->id.meta ^= (L2_ETHER ^ L2_TAG_ACCEL) << META_L2_SHIFT;
	forward_keep(batch, p, 1U << META_TAGGED_SHIFT);
	return 0;
}

static __always_inline __u32 forward_bytes(const struct packet *p, __u32 vid)
{
	return sizeof(struct ethhdr) + (vid ? sizeof(struct vlan_header) : 0) + p->id.bytes;
}

/* As forward_account(), where frames have a tag at either interface. */
static __always_inline void forward_account_tagged(frame_ctx *xdp, struct forward_view *v,
						   struct packet *p, bool recorded)
{
	bool sampled = is_sampled(cfg_features);
	struct packet *spare = batch_spare();

	if (!spare)
		return;
	p->id.meta = (p->id.meta & ((1U << META_VLAN_SHIFT) - 1) & ~(7U << META_L2_SHIFT)) |
		     L2_ETHER << META_L2_SHIFT;
	*spare = *p;
	if (sampled && recorded)
		forward_keep_tagged(xdp, v, DIRECTION_INGRESS);
	else
		count_some(spare->id.iface, DIRECTION_INGRESS,
			   recorded ? REASON_SAMPLED_OUT : REASON_NO_FLOW, 1, 1,
			   forward_bytes(spare, v->in.vid) + spare->overhead);
	if (sampled)
		forward_keep_tagged(xdp, v, DIRECTION_EGRESS);
	else
		count_some(v->out, DIRECTION_EGRESS, REASON_SAMPLED_OUT, 1, 1,
			   forward_bytes(spare, v->leaves.vid));
}

#endif

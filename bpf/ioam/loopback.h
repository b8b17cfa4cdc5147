/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Loopback (RFC 9322): a packet asks nodes to send a copy of its trace back to its source, so that the source learns
 * how far packets come.
 *
 * Input: a packet at tc ingress, whose traces have this node's data. Output: a few of the traces that ask for it in the
 * ring of export.h, from which the agent sends them, and a count of all others by reason; the packet is only read. Of
 * copies that come back to this node, ioam_work.returned: ingress.h counts their hops as a path, and drops them.
 * Called by direct.h, along the options.
 *
 * The limit is one copy for so many traces that the node fills, whether they ask for one or not, so that a source that
 * asks rarely is answered, and one that always asks is not.
 */
#ifndef WAYMARK_IOAM_LOOPBACK_H
#define WAYMARK_IOAM_LOOPBACK_H

/* Of one CPU. */
struct ioam_loopback_work {
	struct ioam_limit limit;
	__u64 filled; /* traces, when the limit was asked last */
	struct ioam_copy copy;
};

/* Takes from the limits. IOAM_LOOPED, or a reason. */
static __always_inline int ioam_loopback_take(struct ioam_loopback_work *l)
{
	__u64 filled, more = 1;
	__u32 every = ioam.loopback_every;
	struct ioam_cpu *cpu = ioam_cpu();

	/* At least this one: XDP may run on another CPU. */
	filled = cpu ? cpu->options[IOAM_WRITTEN] : 0;
	if (filled > l->filled) {
		more = filled - l->filled;
		l->filled = filled;
	}
	ioam_limit_add(&l->limit, more < 0xffffffff ? more : 0xffffffff, every);
	switch (ioam_limit_take(&l->limit, every, ioam.loopback_rate)) {
	case IOAM_LIMIT_OK:
		return IOAM_LOOPED;
	case IOAM_LIMIT_SHARE:
		return IOAM_LOOPBACK_NOT_SAMPLED;
	}
	return IOAM_LOOPBACK_RATE;
}

/* Whether copies may go there: not to groups, links, this host or none. */
static __always_inline bool ioam_loopback_address(const __u8 *to)
{
	__u32 first = to[0] << 8 | to[1];

	return first && first < 0xfe80;
}

/* A trace that asks for a copy, of the option at w->at. IOAM_LOOPED, or why it gets none. */
static __always_inline int ioam_loopback_copy(frame_ctx *ctx, const struct ioam_work *w,
					      const struct ioam_trace *t)
{
	struct ioam_loopback_work *l = SCRATCH(struct ioam_loopback_work, ioam_loopback);
	__u32 len = w->len + 2;
	int rc;

	if (!l || len > sizeof(l->copy.option))
		return IOAM_UNREADABLE;
	if ((bpf_ntohl(t->fields) & ~0xffU) != IOAM_LOOPBACK_FIELDS)
		return IOAM_LOOPBACK_TYPE;
	if (frame_load(ctx, w->l3 + offsetof(struct ipv6hdr, saddr), l->copy.source,
		       sizeof(l->copy.source)) ||
	    frame_load(ctx, w->at, l->copy.option, ioam_bounded(len, IOAM_OLD_MAX)))
		return IOAM_UNREADABLE;
	if (!ioam_loopback_address(l->copy.source))
		return IOAM_LOOPBACK_ADDRESS;
	rc = ioam_loopback_take(l);
	if (rc != IOAM_LOOPED)
		return rc;
	l->copy.iface = iface_of(ctx);
	l->copy.len = len;
	return bpf_ringbuf_output(&ioam_direct_records, &l->copy, sizeof(l->copy), 0)
		       ? IOAM_LOOPBACK_LOST
		       : IOAM_LOOPED;
}

/*
 * Whether a trace in a packet without payload is a copy that came back (RFC 9322 section 4.4): the first of its hops is
 * this node, another one sent it, and it is for this host.
 */
static __always_inline bool ioam_loopback_returned(struct __sk_buff *skb, const struct ioam_work *w,
						   const struct ioam_trace *t)
{
	__u32 id = ioam.node[w->copy & 1].id, remaining = bpf_ntohs(t->lengths) & IOAM_REMAINING;
	struct ipv6hdr ip __attribute__((aligned(8)));
	__be32 first;

	return (bpf_ntohl(t->fields) & ~0xffU) == IOAM_LOOPBACK_FIELDS && id != IOAM_NO_ID &&
	       w->len >= IOAM_HEADER - 2 + remaining * 4 + 2 * sizeof(first) &&
	       !frame_load(skb, w->at + w->len + 2 - sizeof(first), &first, sizeof(first)) &&
	       (bpf_ntohl(first) & IOAM_NO_ID) == id && skb->pkt_type == PACKET_HOST &&
	       !frame_load(skb, w->l3, &ip, sizeof(ip)) && ioam_is_local(skb, &ip);
}

/* The option at w->at, of a packet that arrives. empty: nothing is behind the header. Verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_loopback_option(struct __sk_buff *skb, struct ioam_work *w, __u32 empty)
{
	struct ioam_trace t;
	__u32 lengths;
	int rc;

	if (!w || w->len < IOAM_HEADER - 2 || frame_load(skb, w->at, &t, sizeof(t)) ||
	    t.type != IOAM_PREALLOCATED)
		return 0;
	lengths = bpf_ntohs(t.lengths);
	if (!(lengths & IOAM_LOOPBACK) && !empty)
		return 0;
	w->space = bpf_ntohs(t.space);
	if (!ioam_namespace(w->copy, w->space) ||
	    !(ioam_role(skb, w, w->space) & IOAM_ROLE_INGRESS))
		return 0; /* transit.h or border.h counted it */
	if (!(lengths & IOAM_LOOPBACK)) {
		w->returned |= ioam_loopback_returned(skb, w, &t);
		return 0;
	}
	if (lengths & IOAM_OVERFLOW || !ioam.loopback_every) /* it lacks this node's data */
		return 0;
	rc = ioam_loopback_copy(skb, w, &t);
	if (rc == IOAM_LOOPED)
		ioam_stat(rc);
	else
		ioam_count(skb, DIRECTION_INGRESS, rc, w->space);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hints passed on, by the agent's program, on interfaces for which somebody wants them.
 *
 * Input: a frame that rules let pass. Output: struct hints_meta in front of it, and the frame to an
 * AF_XDP socket, if there is one for its queue that has space for it.
 */
#ifndef WAYMARK_HINTS_PASS_H
#define WAYMARK_HINTS_PASS_H

#include "hints/meta.h"
#include "hints/clock.h"

/* What is passed on: HINTS_ALL, or without the time. Set before loading. */
const volatile __u32 hints_passed = 0;

/* Frames go to sockets. Set before loading: not all kernels have them. */
const volatile bool hints_sockets = false;

/* Interfaces on which hints are passed on, by flow_slot.iface. Written by the agent; clock and refused by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HINTS_TAKERS);
	__type(key, __u32);
	__type(value, struct hints_taker);
} hints_takers SEC(".maps");

/*
 * Sockets of AF_XDP: element hints_taker.first + n is that of queue n. Written by those who receive, who find
 * the map by this name, as is usual; the kernel empties what a socket leaves. The agent makes it an XSKMAP
 * where sockets may have frames.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} xsks_map SEC(".maps");

/* By element of xsks_map. Only one where no socket may have frames. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hints_queue);
} hints_queues SEC(".maps");

/* Takes what others left in front of the frame away, so that metadata is next to it. Not 0: the driver has no space. */
static __always_inline int hints_make_space(struct xdp_md *xdp)
{
	int left = xdp->data - xdp->data_meta;

	if (left && bpf_xdp_adjust_meta(xdp, left))
		return -1;
	return bpf_xdp_adjust_meta(xdp, -(int)sizeof(struct hints_meta));
}

/* Of the rules of the gate: what they drop does not come here. */
static __always_inline enum hints_verdict hints_verdict_of(struct xdp_md *xdp)
{
	if (cfg_features & FEATURE_GATE &&
	    gate_find_iface(gate.copy & 1, iface_of(xdp), GATE_HOOK_XDP))
		return HINTS_PASSED;
	return HINTS_UNDECIDED;
}

/* Fills in what is wanted; the time of IOAM stays where the driver has none. */
static __always_inline void hints_fill(struct hints_meta *m, const struct hints *h)
{
	if (hints_passed & HINTS_TIME && (!m->time || h->source[HINT_TIME] != HINT_COMPUTED))
		m->time = h->time;
	m->hash = h->hash;
	m->hash_l4 = h->hash_l4;
	m->vlan_proto = h->vlan_proto;
	m->vlan_tci = h->vlan_tci;
	for (int i = 0; i < HINTS; i++)
		m->source[i] = h->source[i];
}

/* Whether a socket has space for the frame, which then takes it. One packet at a time comes by a queue. */
static __always_inline bool hints_has_space(struct xdp_md *xdp, __u32 element)
{
	struct hints_queue *q = bpf_map_lookup_elem(&hints_queues, &element);
	__u32 limit, room, buffers;

	if (!q)
		return true;
	limit = WHOLE(q->limit);
	room = WHOLE(q->room);
	if (!limit || !room)
		return true;
	buffers = (frame_len(xdp) + room - 1) / room;
	if (buffers > WHOLE(q->most)) {
		q->too_long++;
		return false;
	}
	if (q->sent + buffers - WHOLE(q->returned) > limit) {
		q->full++;
		return false;
	}
	q->sent += buffers;
	return true;
}

/* To the socket of the queue, else on. What a socket takes is in no flow. */
static __always_inline int hints_to_socket(struct xdp_md *xdp, const struct hints_taker *t)
{
	__u32 queue = xdp->rx_queue_index;
	int action;

	if (!hints_sockets || queue >= HINTS_QUEUES)
		return XDP_PASS;
	action = bpf_redirect_map(&xsks_map, t->first + queue, XDP_PASS);
	if (action != XDP_REDIRECT || !hints_has_space(xdp, t->first + queue))
		return XDP_PASS;
	count(xdp, DIRECTION_INGRESS, REASON_AF_XDP);
	return XDP_REDIRECT;
}

/* Leaves the hints in front of the frame; left: they are there already. false: what is there stays as it is. */
static __always_inline bool hints_leave(struct xdp_md *xdp, struct hints_taker *t, bool left,
					enum hints_verdict verdict)
{
	bool bound = cfg_features & FEATURE_HINTS;
	struct hints_meta *m;
	struct hints h;

	hints_read(xdp, &h, hints_passed, bound);
	if (bound && !hints_observed)
		hints_count(&h, hints_passed);
	if (h.source[HINT_TIME] == HINT_HARDWARE || h.source[HINT_TIME] == HINT_DRIVER)
		h.time = hints_host_time(&t->clock, bpf_ktime_get_ns(), h.time);
	if (!left && hints_make_space(xdp)) {
		__sync_fetch_and_add(&t->refused, 1);
		return true;
	}
	m = (void *)(long)xdp->data_meta;
	if ((void *)(m + 1) > (void *)(long)xdp->data) /* unreachable; satisfies the verifier */
		return false;
	if (!left)
		*m = (struct hints_meta){ .version = HINTS_META_1 };
	hints_fill(m, &h);
	m->verdict = verdict;
	return !(m->own & HINTS_OWN_DROP);
}

/* A frame that passes. left: struct hints_meta is in front of it already. Verified alone. */
__feature(FEATURE_META) __noinline int hints_pass_on(struct xdp_md *xdp, bool left)
{
	__u32 iface = iface_of(xdp);
	struct hints_taker *t = bpf_map_lookup_elem(&hints_takers, &iface);

	if (!t || !hints_leave(xdp, t, left, hints_verdict_of(xdp)) || t->tapped)
		return XDP_PASS;
	return hints_to_socket(xdp, t);
}

/*
 * A frame that rules let pass. marks: enum gate_mark. XDP_REDIRECT where a tap rule selected it, and a socket takes it.
 * Verified alone.
 */
__feature(FEATURE_META) __noinline int hints_tap(struct xdp_md *xdp, __u32 marks)
{
	__u32 iface = iface_of(xdp);
	struct hints_taker *t;

	if (!(marks & GATE_MARK_TAPPED))
		return XDP_PASS;
	t = bpf_map_lookup_elem(&hints_takers, &iface);
	if (!t || hints_to_socket(xdp, t) != XDP_REDIRECT)
		return XDP_PASS;
	hints_leave(xdp, t, false, HINTS_TAPPED);
	return XDP_REDIRECT;
}

#endif

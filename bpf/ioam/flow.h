/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Flows that options are inserted into: are their packets known to arrive (bpf/mark)?
 *
 * Input: a packet that leaves, and the insertion that it gets. Output: MARK_OK and ioam_plan with its
 * flow, or a reason. Called by insert.h.
 */
#ifndef WAYMARK_IOAM_FLOW_H
#define WAYMARK_IOAM_FLOW_H

/*
 * Written and read by the programs. When full, the least recently used flow leaves, and begins again
 * with what is known of its service.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct mark_key);
	__type(value, struct mark_guard);
} ioam_guards SEC(".maps");

/*
 * Flows of TCP of which a segment is awaited, and only some packets are chosen: their other segments
 * are followed, too, or nobody would see that the awaited one is sent again. The element of a flow is
 * found by its hash and has its tag; a second flow that takes the element ends the watch of the
 * first. Written and read by the programs.
 */
#define IOAM_WATCH_BITS 12

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << IOAM_WATCH_BITS);
	__type(key, __u32);
	__type(value, __u32);
} ioam_watches SEC(".maps");

/* What is to be inserted into a packet. */
struct ioam_plan {
	struct mark_key key;
	struct mark_key outer; /* of the tunnel that it goes into */
	struct mark_segment segment;
	struct mark_place place;
	struct mark_layout layout;
	struct mark_guard fresh; /* of a flow that begins */
	__u32 bytes; /* of both blocks; 0: nothing */
	__u32 index; /* in ioam_insertions */
	__u16 space; /* namespace under which the packet is counted */
	__u16 hop; /* bytes of the Hop-by-Hop block */
	__u16 dest; /* bytes of the Destination Options block */
	__u32 grows; /* as in ioam_insertion */
	__u32 hop_at; /* where the blocks are, as offsets from the frame's start */
	__u32 dest_at;
	__u8 hop_form; /* enum ioam_form */
	__u8 dest_form;
	int verdict;
	bool wraps; /* behind an outer header, and not at all inside */
	bool placed; /* there is space in the packet, and the blocks are not written yet */
	bool part; /* not all packets of the flow are chosen */
	bool closed; /* all nodes on the path are the operator's */
	bool risks; /* nobody knows whether the packet arrives */
	bool asks; /* it asks the end of the tunnel whether it is there: see echo.h */
	bool answered; /* the end of the tunnel is there */
};

static __always_inline struct ioam_plan *ioam_plan_of_cpu(void)
{
	return IOAM_CPU(struct ioam_plan, plan);
}

/* Bytes by which what is planned makes a packet longer on its way at most. */
static __always_inline __u32 ioam_grows(void)
{
	struct ioam_plan *plan = ioam_plan_of_cpu();

	return plan ? plan->grows : 0;
}

static __always_inline __u32 *ioam_watch_of(__u64 hash)
{
	__u32 index = hash & ((1 << IOAM_WATCH_BITS) - 1);

	return bpf_map_lookup_elem(&ioam_watches, &index);
}

static __always_inline __u32 ioam_watch_tag(__u64 hash)
{
	return hash >> 32 | 1;
}

/* The guard of the plan's flow, which begins if it is new. */
static __noinline struct mark_guard *ioam_guard(struct ioam_plan *plan, __u64 now)
{
	struct mark_guard *g = bpf_map_lookup_elem(&ioam_guards, &plan->key);

	if (g)
		return g;
	guard_begin(&plan->fresh, &plan->key, now);
	bpf_map_update_elem(&ioam_guards, &plan->key, &plan->fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&ioam_guards, &plan->key);
}

/*
 * What happened to the flow while none of its packets was chosen: the socket knows what it has sent.
 * A watch that others ended showed nothing.
 */
static __always_inline void ioam_catch_up(struct __sk_buff *skb, const struct packet *p,
					  struct mark_guard *g)
{
	struct bpf_sock *sk = skb->sk;
	struct bpf_tcp_sock *tcp = sk ? bpf_tcp_sock(sk) : NULL;
	__u32 *watch = ioam_watch_of(p->hash);

	if (tcp && g->flags & GUARD_TCP && is_after(tcp->snd_nxt, g->sent_end))
		g->sent_end = tcp->snd_nxt;
	if (!watch || *watch != ioam_watch_tag(p->hash))
		g->watch_len = 0;
}

/* Whether the flow takes another packet with options: MARK_OK or a reason. */
static __always_inline int ioam_guard_packet(struct __sk_buff *skb, const struct packet *p,
					     struct ioam_plan *plan, struct mark_guard *g,
					     __u64 now)
{
	struct mark_segment *seg = &plan->segment;
	int rc;

	seg->tried = false;
	seg->tcp = p->id.proto == IPPROTO_TCP;
	if (seg->tcp) {
		if (plan->part)
			ioam_catch_up(skb, p, g);
		rc = guard_tcp(skb, p, g, &plan->key, now, seg, plan->closed);
		plan->risks = guard_risks(g);
		return rc;
	}
	plan->risks = false;
	if (plan->wraps) {
		if (!plan->answered && !plan->asks)
			return MARK_UNPROVEN;
		/* Nothing else shows whether they leave the tunnel again but TCP to the same destination. */
		if (now - g->checked > CHECK_NS)
			guard_refresh(g, &plan->key, now);
		return now < g->fallback ? MARK_FALLBACK : MARK_OK;
	}
	if (plan->closed) {
		/* Nothing acknowledges these, but all nodes on the path are the operator's. */
		g->shown = 0xffff;
		g->checked = now;
		return MARK_OK;
	}
	rc = guard_datagram(g, &plan->key, now, 0, false);
	if (rc != MARK_TRY)
		return rc;
	seg->tried = true;
	plan->risks = true;
	return MARK_OK;
}

/* The packet leaves with options; seg->len is its length. */
static __always_inline void ioam_note_inserted(const struct packet *p, struct ioam_plan *plan,
					       struct mark_guard *g, __u64 now)
{
	struct mark_segment *seg = &plan->segment;
	__u32 *watch;

	if (!seg->tcp) {
		if (seg->tried)
			guard_tried(g, &plan->key, now);
		return;
	}
	if (!(g->flags & GUARD_PASSED))
		guard_risk(&plan->key, now);
	guard_sent(g, seg, true, now);
	if (!plan->part || !g->watch_len)
		return;
	watch = ioam_watch_of(p->hash);
	if (watch)
		*watch = ioam_watch_tag(p->hash);
}

/* A packet that is not chosen, of a flow that a segment is awaited of. */
__feature(FEATURE_IOAM) __noinline int ioam_follow(struct __sk_buff *skb, const struct packet *p)
{
	struct ioam_plan *plan = ioam_plan_of_cpu();
	struct mark_guard *g = NULL;
	__u32 *watch;

	if (!p || !plan)
		return 0;
	watch = ioam_watch_of(p->hash);
	if (!watch || p->id.proto != IPPROTO_TCP)
		return 0;
	key_of(p, false, MARK_IOAM_HOP, &plan->key);
#pragma clang loop unroll(disable)
	for (int kind = MARK_IOAM_HOP; kind < MARK_KINDS && !g; kind++) {
		plan->key.kind = kind;
		g = bpf_map_lookup_elem(&ioam_guards, &plan->key);
	}
	if (!g)
		return 0;
	guard_tcp(skb, p, g, &plan->key, mark_now(), &plan->segment, false);
	if (!g->watch_len)
		*watch = 0;
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Inserts IOAM options into packets that leave (RFC 9486).
 *
 * Input: a parsed packet. Output: the packet with the options of the insertion that its policy names,
 * in a Hop-by-Hop header, in a Destination Options header in front of its upper layer, or in both, and
 * struct packet as if they had been there always; or the packet as it was, and a reason counted. Called
 * at tc egress, before the flow is accounted.
 *
 * The kernel makes space once in a packet. So what is planned here is inserted together with the
 * option of PDM where that is, too (pdm/mark.h), and by itself otherwise.
 *
 * Where both are inserted and one of them is not known to arrive, PDM goes first and alone: a packet
 * that is lost shows which of them it was.
 */
#ifndef WAYMARK_IOAM_INSERT_H
#define WAYMARK_IOAM_INSERT_H

/* Whether there is anything to insert, on any interface. */
static __always_inline bool ioam_inserts(void)
{
	return ioam.insertions[ioam.copy & 1];
}

/* Whether a packet with a Hop-by-Hop header has an option of the namespace already. */
__feature(FEATURE_IOAM) __noinline
	int ioam_has_namespace(struct __sk_buff *skb, struct ioam_work *w, __u32 space)
{
	struct ioam_options o;
	bool changes;

	if (!w || !ioam_options(skb, w->l3, &o, &w->hop_limit))
		return false;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_OPTIONS_MAX && ioam_next(skb, &o, w, &changes); i++) {
		__be16 id;

		if (!changes || w->len < IOAM_BODY)
			continue;
		if (!bpf_skb_load_bytes(skb, w->at + IOAM_BODY, &id, sizeof(id)) &&
		    id == bpf_htons(space))
			return true;
	}
	return false;
}

/*
 * Whether a packet has IOAM options already. Then no trace may follow that asks for copies (RFC 9322 section 4.1); and
 * without payload the packet is such a copy, which stays as it is.
 */
__feature(FEATURE_IOAM) __noinline int ioam_has_any(struct __sk_buff *skb, struct ioam_work *w)
{
	struct ioam_options o;
	bool changes;
	__u32 l3;

	if (!w || !ioam_has_options(skb, &l3) || !ioam_options(skb, l3, &o, &w->hop_limit))
		return false;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_OPTIONS_MAX && ioam_next(skb, &o, w, &changes); i++) {
		if (changes || ioam_is_direct(skb, w))
			return true;
	}
	return false;
}

/* Where the blocks go in a packet with extension headers, and their forms. */
static __always_inline int ioam_find_place(struct __sk_buff *skb, const struct packet *p,
					   struct ioam_work *w, const struct ioam_insertion *in,
					   struct ioam_plan *plan)
{
	struct mark_layout *l = &plan->layout;
	int rc = find_layout(skb, p->l3_offset, l);

	if (rc != WALK_OK)
		return rc;
	rc = place_behind(skb, p, l, &plan->place);
	if (rc != MARK_OK)
		return rc;
	if (l->hop) {
		plan->hop_form = IOAM_HOP_APPENDED;
		if (ioam_has_namespace(skb, w, in->space))
			return MARK_MARKED;
	}
	if (plan->place.join)
		plan->dest_form = IOAM_DEST_APPENDED;
	return MARK_OK;
}

/* The sizes of the blocks, and whether headers that are there take them. */
static __always_inline int ioam_measure(const struct ioam_insertion *in, struct ioam_plan *plan)
{
	const struct mark_layout *l = &plan->layout;

	plan->hop = in->bytes[plan->hop_form & IOAM_HOP_APPENDED];
	plan->dest = in->bytes[IOAM_DEST_NEW | (plan->dest_form & 1)];
	if (plan->hop_form == IOAM_HOP_APPENDED && plan->hop && l->hop + plan->hop > 256 * 8)
		return MARK_FULL_HEADER;
	if (plan->dest_form == IOAM_DEST_APPENDED && plan->dest &&
	    (l->dest.size + plan->dest > 256 * 8 ||
	     l->dest.others + in->options[1] > OPTIONS_RECEIVER ||
	     l->dest.options + in->options[1] > OPTIONS_MAX))
		return MARK_FULL_HEADER;
	return MARK_OK;
}

/* Whether an insertion may be done, and how: MARK_OK and the plan, or a reason. */
static __always_inline int ioam_may_insert(struct __sk_buff *skb, const struct packet *p,
					   struct ioam_work *w, const struct ioam_insertion *in,
					   struct ioam_plan *plan)
{
	__u32 most = in->bytes[IOAM_HOP_NEW] + in->bytes[IOAM_DEST_NEW];
	int rc;

	plan->hop_form = IOAM_HOP_NEW;
	plan->dest_form = IOAM_DEST_NEW;
	rc = place_first(skb, p, most, &plan->place);
	if (rc == MARK_OK && is_extension(plan->place.proto, true))
		rc = ioam_find_place(skb, p, w, in, plan);
	return rc == MARK_OK ? ioam_measure(in, plan) : rc;
}

/* Makes space for the Hop-by-Hop block where the gap begins, or behind the header that is there. */
static __always_inline int ioam_place_hop(struct __sk_buff *skb, struct ioam_plan *plan, __u32 l3,
					  struct space *gap, struct mark_place *place)
{
	__u32 header = l3 + sizeof(struct ipv6hdr), named = l3 + offsetof(struct ipv6hdr, nexthdr);
	bool appended = plan->hop_form == IOAM_HOP_APPENDED;
	__u8 *byte, *next;

	if (appended && space_forward(skb, gap, header + plan->layout.hop + gap->bytes) != SPACE_OK)
		return MARK_BROKEN;
	plan->hop_at = gap->at;
	byte = ioam_bytes(skb, appended ? header + 1 : named, 1);
	next = ioam_bytes(skb, gap->at, 2);
	if (!byte || !next)
		return MARK_BROKEN;
	if (appended) {
		*byte += plan->hop / 8;
	} else {
		next[0] = *byte;
		next[1] = plan->hop / 8 - 1;
		*byte = IPPROTO_HOPOPTS;
	}
	space_use(gap, plan->hop);
	place->upper += plan->hop;
	if (place->join)
		place->join += plan->hop;
	if (place->link == named)
		place->link = header;
	else if (place->link != header || !appended)
		place->link += plan->hop;
	return MARK_OK;
}

/* Likewise for Destination Options, in front of the upper layer. */
static __always_inline int ioam_place_dest(struct __sk_buff *skb, struct ioam_plan *plan,
					   struct space *gap, struct mark_place *place)
{
	__u32 at = place->upper;
	__u8 *byte, *next;

	if (at != gap->at && space_forward(skb, gap, at + gap->bytes) != SPACE_OK)
		return MARK_BROKEN;
	plan->dest_at = at;
	space_use(gap, plan->dest);
	place->upper += plan->dest;
	if (plan->dest_form == IOAM_DEST_APPENDED) {
		byte = ioam_bytes(skb, place->join + 1, 1);
		if (!byte)
			return MARK_BROKEN;
		*byte += plan->dest / 8;
		return MARK_OK;
	}
	byte = ioam_bytes(skb, place->link, 1);
	next = ioam_bytes(skb, at, 2);
	if (!byte || !next)
		return MARK_BROKEN;
	next[0] = place->proto;
	next[1] = plan->dest / 8 - 1;
	*byte = IPPROTO_DSTOPTS;
	place->link = at;
	place->join = at;
	return MARK_OK;
}

/*
 * Makes space for what is planned, of a gap directly after the IPv6 header, and leaves the rest of the
 * gap. place: of the upper layer; afterwards where it is by now, without the rest. Of the blocks only
 * Next Header and length of a new header are written: ioam_write_placed() does the rest, for which the
 * stack is not deep enough here.
 */
__feature(FEATURE_IOAM) __noinline
	int ioam_insert_gap(struct __sk_buff *skb, struct space *gap, struct mark_place *place)
{
	struct ioam_plan *plan = ioam_plan_of_cpu();
	struct ioam_work *w;
	int rc = MARK_OK;

	w = IOAM_CPU(struct ioam_work, work);
	if (!w || !plan || !gap || !place)
		return MARK_BROKEN;
	plan->bytes = 0;
	plan->placed = true;
	if (plan->hop)
		rc = ioam_place_hop(skb, plan, w->l3, gap, place);
	if (rc == MARK_OK && plan->dest)
		rc = ioam_place_dest(skb, plan, gap, place);
	return rc;
}

/*
 * Writes a block where space was made for it, and keeps the first bytes of a new header, which PDM may
 * have changed since.
 */
static __always_inline bool ioam_write_block(struct __sk_buff *skb, struct ioam_work *w,
					     const struct ioam_insertion *in, __u32 form, __u32 at)
{
	__u8 *start = ioam_bytes(skb, at, 2), next, len;

	if (!start)
		return false;
	next = start[0];
	len = start[1];
	if (ioam_write(skb, w, in, form, at))
		return false;
	if (form & 1)
		return true;
	start = ioam_bytes(skb, at, 2);
	if (!start)
		return false;
	start[0] = next;
	start[1] = len;
	return true;
}

/* Writes what space was made for. TC_ACT_UNSPEC, or TC_ACT_SHOT for a packet that is not complete. */
__feature(FEATURE_IOAM) __noinline
	int ioam_write_placed(struct __sk_buff *skb, const struct packet *p)
{
	struct ioam_plan *plan = ioam_plan_of_cpu();
	struct ioam_insertion *in;
	struct ioam_work *w;

	w = IOAM_CPU(struct ioam_work, work);
	if (!w || !p || !plan || !plan->placed)
		return TC_ACT_UNSPEC;
	plan->placed = false;
	in = bpf_map_lookup_elem(&ioam_insertions, &plan->index);
	if (!in)
		return TC_ACT_SHOT;
	if (plan->hop && !ioam_write_block(skb, w, in, plan->hop_form, plan->hop_at))
		return TC_ACT_SHOT;
	if (plan->dest && !ioam_write_block(skb, w, in, plan->dest_form, plan->dest_at))
		return TC_ACT_SHOT;
	ioam_inserted(in, p);
	return TC_ACT_UNSPEC;
}

static __always_inline int ioam_refuse(struct __sk_buff *skb, const struct ioam_plan *plan, int rc)
{
	ioam_count(skb, DIRECTION_EGRESS, IOAM_REFUSED + rc, plan->space);
	return rc == MARK_BROKEN ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* Inserts what is planned and nothing else. TC_ACT_UNSPEC, or TC_ACT_SHOT. */
static __always_inline int ioam_insert_now(struct __sk_buff *skb, struct packet *p,
					   struct ioam_plan *plan, struct mark_guard *g, __u64 now)
{
	struct mark_segment *seg = &plan->segment;
	__u32 bytes = plan->bytes;
	struct space gap;
	int rc;

	plan->bytes = 0;
	rc = fit(skb, p, g, seg, now, bytes, plan->grows);
	if (rc != MARK_OK) {
		/* As it is, it can show that such packets arrive. */
		if (seg->tcp && seg->len <= 0xffff)
			guard_sent(g, seg, false, now);
		return ioam_refuse(skb, plan, rc);
	}
	rc = mark_reason_of(space_make(skb, p->l3_offset, bytes, seg->flags, &gap));
	if (rc != MARK_OK)
		return ioam_refuse(skb, plan, rc);
	rc = ioam_insert_gap(skb, &gap, &plan->place);
	if (rc != MARK_OK || gap.bytes)
		return ioam_refuse(skb, plan, MARK_BROKEN);
	ioam_note_inserted(p, plan, g, now);
	account_mark(skb, p, bytes);
	return TC_ACT_UNSPEC;
}

static __always_inline enum mark_kind ioam_kind(const struct ioam_insertion *in)
{
	if (in->mode == IOAM_IP6IP6)
		return MARK_IOAM_OUTER;
	return in->bytes[IOAM_HOP_NEW] ? MARK_IOAM_HOP : MARK_IOAM_DEST;
}

/*
 * Chooses what is inserted into a packet. With PDM on the interface it is only planned, else space is
 * made. What is left to do, and the verdict, are for ioam_insert_rest().
 */
__feature(FEATURE_IOAM) __noinline int ioam_insert(struct __sk_buff *skb, struct packet *p)
{
	struct ioam_plan *plan = ioam_plan_of_cpu();
	const struct ioam_insertion *in;
	struct mark_guard *g;
	struct ioam_work *w;
	__u32 *watch;
	__u64 now;
	int rc;

	w = IOAM_CPU(struct ioam_work, work);
	if (!p || !plan || !w)
		return 0;
	plan->bytes = 0;
	plan->placed = plan->wraps = false;
	plan->verdict = TC_ACT_UNSPEC;
	if (!(p->id.meta >> META_IPV6_SHIFT & 1))
		return 0;
	plan->asks = ioam_is_echo(skb);
	in = plan->asks ? ioam_echo(skb, p, w) : ioam_choose(skb, p, w);
	if (!in && plan->asks) {
		plan->verdict = TC_ACT_SHOT;
		return 0;
	}
	if (!in) {
		watch = ioam_watch_of(p->hash);
		if (watch && *watch == ioam_watch_tag(p->hash))
			ioam_follow(skb, p);
		return 0;
	}
	plan->index = in->template / 2;
	plan->grows = in->grows;
	plan->wraps = in->mode == IOAM_IP6IP6;
	plan->space = in->space;
	plan->part = in->flags & IOAM_INSERTION_PART;
	/* Both ends of a tunnel are the operator's. */
	plan->closed = plan->wraps || in->flags & IOAM_INSERTION_CLOSED;
	key_of(p, false, ioam_kind(in), &plan->key);
	/* ioam_choose() knows which packets of others are meant. */
	rc = plan->asks ? mark_reason_of(space_framed(skb, p->l3_offset)) : may_mark(skb, p, true);
	if (rc == MARK_OK && (in->flags & IOAM_INSERTION_LOOPBACK || p->id.proto == IPPROTO_NONE) &&
	    ioam_has_any(skb, w))
		rc = MARK_MARKED;
	if (rc == MARK_OK && !plan->wraps)
		rc = ioam_may_insert(skb, p, w, in, plan);
	now = mark_now();
	if (!w->received) /* of this host: it is inserted now */
		w->received = now;
	plan->answered = ioam_answers_now(in, now);
	if (rc == MARK_OK) {
		g = ioam_guard(plan, now);
		rc = g ? ioam_guard_packet(skb, p, plan, g, now) : MARK_NEW_FAILED;
	} else {
		g = bpf_map_lookup_elem(&ioam_guards, &plan->key);
		if (g)
			guard_skip(skb, p, g, &plan->segment);
	}
	if (rc != MARK_OK || !g) {
		ioam_count(skb, DIRECTION_EGRESS, IOAM_REFUSED + rc, plan->space);
		plan->wraps = false;
		if (plan->asks)
			plan->verdict = TC_ACT_SHOT;
		return 0;
	}
	if (plan->wraps)
		return 0;
	plan->bytes = plan->hop + plan->dest;
	if (!(cfg_features & FEATURE_PDM))
		plan->verdict = ioam_insert_now(skb, p, plan, g, now);
	return 0;
}

#define IOAM_PLACED 1 /* what is left is for ioam_write_placed() */

/*
 * Inserts what was planned and PDM has not taken along. IOAM_PLACED, TC_ACT_UNSPEC, or TC_ACT_SHOT for
 * a packet that could not be finished.
 */
__feature(FEATURE_IOAM) __noinline int ioam_insert_rest(struct __sk_buff *skb, struct packet *p)
{
	struct ioam_plan *plan = ioam_plan_of_cpu();
	struct mark_guard *g;

	if (!p || !plan)
		return TC_ACT_UNSPEC;
	if (plan->wraps)
		return ioam_wrap(skb, p, plan->index);
	if (plan->bytes) {
		g = bpf_map_lookup_elem(&ioam_guards, &plan->key);
		if (g)
			plan->verdict = ioam_insert_now(skb, p, plan, g, mark_now());
		plan->bytes = 0;
	}
	if (plan->placed && plan->verdict == TC_ACT_UNSPEC)
		return IOAM_PLACED;
	return plan->verdict == TC_ACT_UNSPEC ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Only PDM's option fits. */
static __always_inline void ioam_leaves(struct __sk_buff *skb, int reason)
{
	struct ioam_plan *plan = ioam_plan_of_cpu();

	if (!plan)
		return;
	plan->bytes = 0;
	ioam_count(skb, DIRECTION_EGRESS, IOAM_REFUSED + reason, plan->space);
}

/*
 * Bytes that go along with the option of PDM; 0: none, and the plan ends. risks: nobody knows whether
 * that option arrives.
 */
static __always_inline __u32 ioam_joins(struct __sk_buff *skb, const struct mark_guard *g,
					bool risks)
{
	struct ioam_plan *plan = ioam_plan_of_cpu();
	__u32 bytes = plan && ioam_inserts() ? plan->bytes : 0;

	if (!bytes || !(risks || (plan->risks && g->strikes)))
		return bytes;
	plan->bytes = 0;
	ioam_count(skb, DIRECTION_EGRESS, IOAM_REFUSED + MARK_UNPROVEN, plan->space);
	return 0;
}

/* What was planned has left with PDM's option, by so many bytes longer: len is its length. */
__feature(FEATURE_IOAM) __noinline
	int ioam_joined(const struct packet *p, __u32 len, __u32 bytes, __u64 now)
{
	struct ioam_plan *plan = ioam_plan_of_cpu();
	struct mark_guard *g;

	if (!plan || !p)
		return 0;
	g = bpf_map_lookup_elem(&ioam_guards, &plan->key);
	if (!g)
		return 0;
	plan->segment.len = len;
	plan->segment.mark = bytes;
	ioam_note_inserted(p, plan, g, now);
	return 0;
}

#endif

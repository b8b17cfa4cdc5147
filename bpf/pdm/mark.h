/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Marks packets that leave (RFC 8250).
 *
 * Input: a parsed packet. Output: the packet with one more PDM option, directly
 * before its upper layer, and struct packet as if it had been there always; or the
 * packet as it was, and a reason counted if a policy names it. Called at tc egress,
 * before the flow is accounted, so that records report what is on the wire.
 */
#ifndef WAYMARK_PDM_MARK_H
#define WAYMARK_PDM_MARK_H

#define ICMPV6_INFORMATION 128 /* types below are errors */

#define LOOPBACK_IFINDEX 1 /* in every network namespace */

/* MARK_OK or a reason. */
static __always_inline int reason_of(enum space_result rc)
{
	switch (rc) {
	case SPACE_OK:
		return MARK_OK;
	case SPACE_FRAME:
		return PDM_FRAME;
	case SPACE_UNREADABLE:
		return PDM_CHAIN;
	case SPACE_JUMBOGRAM:
		return PDM_JUMBOGRAM;
	case SPACE_TOO_LONG:
		return PDM_TOO_LONG;
	case SPACE_DEEP:
		return PDM_DEEP;
	case SPACE_REFUSED:
		return PDM_NO_SPACE;
	case SPACE_BROKEN:
		break;
	}
	return PDM_BROKEN;
}

/* Packets that must not be marked, whoever asks for it. MARK_OK or a reason. */
static __always_inline int may_mark(struct __sk_buff *skb, const struct packet *p)
{
	__u32 type = bpf_ntohs(p->id.dport) >> 8;

	if (skb->ifindex == LOOPBACK_IFINDEX)
		return PDM_LOOPBACK;
	if (p->id.meta >> META_TUNNEL_SHIFT & 7)
		return PDM_TUNNEL;
	if (p->fragment)
		return PDM_FRAGMENT;
	if (p->id.proto == IPPROTO_ESP)
		return PDM_ESP;
	if (p->id.proto == IPPROTO_ICMPV6) {
		if (type < ICMPV6_INFORMATION)
			return PDM_ICMP_ERROR;
		if ((type >= 130 && type <= 137) || type == 143)
			return PDM_NEIGHBOR;
	}
	/* Set for what was received, here or on a port of a bridge, and not for what
	 * this host makes, by a socket or without one. */
	if (!cfg_pdm_closed_domain && skb->ingress_ifindex)
		return PDM_TRANSIT;
	return reason_of(space_framed(skb, p->l3_offset));
}

/* The place for the option in a packet with extension headers. */
static __always_inline int find_place(struct __sk_buff *skb, const struct packet *p,
				      struct pdm_work *work)
{
	struct pdm_place *place = &work->place;
	struct pdm_layout *l = &work->layout;
	int rc = find_layout(skb, p->l3_offset, l);

	if (rc != WALK_OK)
		return rc;
	if (l->version2)
		return PDM_VERSION2;
	if (l->marked.option)
		return PDM_MARKED;
	if (l->authenticated)
		return PDM_AH;
	if (l->fragment)
		return PDM_FRAGMENT;
	place->upper = l->chain.offset;
	place->link = l->chain.link;
	place->proto = l->chain.next;
	rc = reason_of(space_reach(skb, p->l3_offset, place->upper, 0));
	if (rc != MARK_OK)
		return rc;
	if (l->last == IPPROTO_DSTOPTS) {
		if (l->dest.size + PDM_HEADER > 256 * 8 || l->dest.others >= OPTIONS_RECEIVER ||
		    l->dest.options + 2 > OPTIONS_MAX)
			return PDM_FULL_HEADER;
		place->join = l->chain.link;
	}
	return MARK_OK;
}

static __always_inline __u64 word(__u8 a, __u8 b, __u8 c, __u8 d, __u16 e, __u16 f)
{
	return bpf_cpu_to_be64((__u64)a << 56 | (__u64)b << 48 | (__u64)c << 40 | (__u64)d << 32 |
			       (__u64)e << 16 | f);
}

/* Writes header or option into the space, and the byte before it that names or counts it. */
static __always_inline int write_option(struct __sk_buff *skb, const struct pdm_place *place,
					const struct pdm_option *o)
{
	__u32 upper = place->upper, link = place->link, join = place->join;
	struct frame f = frame_of(skb);
	__u64 *space;
	__u8 *byte;

	if (upper > HEADERS_MAX || link > HEADERS_MAX || join > HEADERS_MAX)
		return PDM_BROKEN;
	space = f.data + upper;
	byte = f.data + (join ? join + 1 : link);
	if ((void *)(space + 2) > f.end || (void *)(byte + 1) > f.end)
		return PDM_BROKEN;
	if (join) {
		space[0] =
			word(PDM_OPTION, PDM_LEN, o->dtlr.scale, o->dtls.scale, o->psntp, o->psnlr);
		space[1] = word(o->dtlr.delta >> 8, o->dtlr.delta, o->dtls.delta >> 8,
				o->dtls.delta, OPTION_PADN << 8 | 2, 0);
		*byte += PDM_HEADER / 8;
	} else {
		space[0] = word(place->proto, PDM_HEADER / 8 - 1, PDM_OPTION, PDM_LEN,
				o->dtlr.scale << 8 | o->dtls.scale, o->psntp);
		space[1] = word(o->psnlr >> 8, o->psnlr, o->dtlr.delta >> 8, o->dtlr.delta,
				o->dtls.delta, OPTION_PADN << 8);
		*byte = IPPROTO_DSTOPTS;
	}
	return MARK_OK;
}

/*
 * A known flow costs one look-up. When it is new, or policies changed, or its
 * policy ended, they are asked again: then work->verdict is their answer.
 */
static __always_inline struct pdm_state *find_state(const struct packet *p, struct pdm_work *work,
						    __u64 now, __u32 generation)
{
	struct pdm_state *s = bpf_map_lookup_elem(&pdm_states, &work->key);
	struct pdm_verdict *v = &work->verdict;

	if (s && is_stale(s, now)) {
		if (!bpf_map_delete_elem(&pdm_states, &work->key))
			PDM_STAT_ADD(renewed, 1);
		s = NULL;
	}
	if (s && s->generation == generation && now < s->until)
		return s;
	v->policy = policy_of(p, generation, now, &work->prefix, &v->until);
	if (v->policy < 0)
		return NULL;
	if (s) {
		s->policy = v->policy;
		s->until = v->until;
		s->generation = generation;
		/* What was sent while no policy named the flow is not known here. */
		s->guard.flags &= ~GUARD_TCP;
	}
	return s;
}

/*
 * The packet as measure() would find it now: each segment of a burst has the
 * option, and if they were cut again there may be more of them.
 */
static __always_inline void account_mark(struct __sk_buff *skb, struct packet *p)
{
	__u32 more = p->gso_packets, total = p->id.bytes - more * (p->repeated - p->l3_offset);

	if (skb->gso_size) {
		p->repeated += PDM_HEADER;
		more = segments_behind(skb, p->repeated) - 1;
	}
	p->l4_offset += PDM_HEADER;
	p->gso_packets = more;
	p->gso_bytes = more * p->repeated;
	p->rare |= more;
	p->word[WORD_COUNTS] = (__u64)(total + PDM_HEADER + more * (p->repeated - p->l3_offset))
				       << 32 |
			       (more + 1);
}

/*
 * A Linux router that gets a burst whole (GRO) reads the length of its TCP header
 * where that would be without ours: from the upper half of byte 12, which is the
 * first of DTLS. Kernels of 2026 (7.0.10, Debian's 6.12.117) drop the burst if that
 * is less than 5, and all refuse it if its segments seem to exceed the MTU: our
 * header and the least that TCP has make 9. A DTLS of 0x5000 to 0x9fff suits both;
 * that is a factor of two, so any time has one, of 15 bits or more. No DTLS becomes
 * 20 femtoseconds: the scale of 0 says that it is none.
 */
static __always_inline void suit_routers(struct pdm_option *o)
{
	if (o->dtls.delta >= 0xa000) {
		o->dtls.delta >>= 1;
		o->dtls.scale++;
	} else if (!o->dtls.delta) {
		o->dtls.delta = 0x5000;
	}
}

static __always_inline void note_sent(struct pdm_state *s, const struct packet *p)
{
	if (s->out_iface == p->id.iface && s->out_meta == p->id.meta && s->out_dport == p->id.dport)
		return;
	s->out_iface = p->id.iface;
	s->out_meta = p->id.meta;
	s->out_dport = p->id.dport;
}

static __noinline int report_marked(const struct packet *p, const struct pdm_key *key, __u64 now,
				    const struct pdm_option *o)
{
	struct pdm_event *e = begin_event(p, key, now);

	if (!e)
		return 0;
	encode(o, e->option);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/* Whether the packet takes an option, and where: work->place. */
static __always_inline int locate(struct __sk_buff *skb, const struct packet *p,
				  struct pdm_work *work)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct pdm_place *place = &work->place;
	struct ipv6hdr *ip;
	int rc;

	if (p->l3_offset > HEADERS_MAX)
		return PDM_CHAIN;
	ip = data + p->l3_offset;
	if ((void *)(ip + 1) > end)
		return PDM_CHAIN;
	rc = reason_of(space_fits(ip, PDM_HEADER));
	if (rc != MARK_OK)
		return rc;
	place->upper = p->l3_offset + sizeof(*ip);
	place->join = 0;
	place->proto = ip->nexthdr;
	place->link = p->l3_offset + offsetof(struct ipv6hdr, nexthdr);
	return is_extension(place->proto, true) ? find_place(skb, p, work) : MARK_OK;
}

/* The state of a new flow, with what the policy says of it. NULL: *rc is the reason. */
static __always_inline struct pdm_state *new_state(struct __sk_buff *skb, const struct packet *p,
						   struct pdm_work *work, __u64 now,
						   __u32 generation, int *rc)
{
	struct pdm_state *s = pdm_create(work, now, rc);

	if (!s)
		return NULL;
	s->policy = work->verdict.policy;
	s->until = work->verdict.until;
	s->generation = generation;
	s->second = now;
	s->no_checksum = lacks_checksum(p, word_of(skb, p));
	return s;
}

/* What pdm_mark() does, with a reason for what it does not. */
static __always_inline int mark(struct __sk_buff *skb, struct packet *p)
{
	__u32 generation = policy_generation;
	__u64 now, hash = p->hash, *unnamed = unnamed_slot(hash);
	struct pdm_work *work = get_work();
	__u32 burst = skb->gso_size;
	struct pdm_place *place;
	struct pdm_guard *guard;
	struct space gap;
	struct pdm_state *s;
	int rc, why;

	if (!work || !unnamed || *unnamed == unnamed_tag(hash, generation))
		return MARK_NOT_NAMED;
	now = pdm_now();
	key_of(p, false, &work->key);
	s = find_state(p, work, now, generation);
	if (!s && work->verdict.policy < 0) {
		if (work->verdict.policy == POLICY_HELD)
			return PDM_ADDRESS;
		*unnamed = unnamed_tag(hash, generation);
		return MARK_NOT_NAMED;
	}
	rc = may_mark(skb, p);
	if (rc == MARK_OK)
		rc = locate(skb, p, work);
	if (rc != MARK_OK) {
		if (s)
			guard_skip(skb, p, &s->guard, &work->segment);
		return rc;
	}
	place = &work->place;
	if (!s)
		guard_begin(work, now);
	guard = s ? &s->guard : &work->fresh.guard;
	rc = guard_packet(skb, p, s, guard, work, now);
	/* Packets of datagrams are counted before one is tried. */
	if (rc == PDM_UNPROVEN && !s && !work->segment.tcp)
		new_state(skb, p, work, now, generation, &why);
	if (rc != MARK_OK)
		return rc;
	if (s && is_limited(s, p, now))
		return PDM_LIMITED;
	rc = fit(skb, p, guard, work, now);
	if (rc != MARK_OK)
		return rc;
	if (!s) {
		s = new_state(skb, p, work, now, generation, &rc);
		if (!s)
			return rc;
		guard = &s->guard;
	}
	rc = reason_of(space_make(skb, p->l3_offset, PDM_HEADER, work->flags, &gap));
	if (rc != MARK_OK)
		return rc;
	if (place->upper != gap.at &&
	    space_forward(skb, &gap, place->upper + PDM_HEADER) != SPACE_OK)
		return PDM_BROKEN;
	pdm_send(s, now, !is_bare(p), &work->option);
	if (burst)
		suit_routers(&work->option);
	rc = write_option(skb, place, &work->option);
	if (rc != MARK_OK)
		return rc;
	note_sent(s, p);
	limit_count(s, p);
	if (work->segment.tcp && !(guard->flags & GUARD_PASSED))
		guard_risk(&work->key, now);
	if (work->segment.tcp)
		guard_sent(guard, &work->segment, true, now);
	else if (work->tried)
		guard_tried(guard, &work->key, now);
	if (cfg_pdm_raw)
		report_marked(p, &work->key, now, &work->option);
	account_mark(skb, p);
	return MARK_OK;
}

/*
 * TC_ACT_UNSPEC, or TC_ACT_SHOT. Not static: verified alone and once, whatever
 * leads to it.
 */
__feature(FEATURE_PDM) __noinline int pdm_mark_ipv6(struct __sk_buff *skb, struct packet *p)
{
	int rc;

	if (!p)
		return TC_ACT_UNSPEC;
	rc = mark(skb, p);
	if (rc == MARK_OK)
		PDM_STAT_ADD(marked, 1);
	else if (rc != MARK_NOT_NAMED)
		pdm_count(skb, DIRECTION_EGRESS, rc);
	return rc == PDM_BROKEN ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

static __always_inline int pdm_mark(struct __sk_buff *skb, struct packet *p)
{
	if (!(p->id.meta >> META_IPV6_SHIFT & 1))
		return TC_ACT_UNSPEC;
	return pdm_mark_ipv6(skb, p);
}

#endif

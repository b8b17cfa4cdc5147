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

/* The place for the option in a packet with extension headers. */
static __always_inline int find_place(struct __sk_buff *skb, const struct packet *p,
				      struct mark_layout *l, struct mark_place *place)
{
	int rc = find_layout(skb, p->l3_offset, l);

	if (rc != WALK_OK)
		return rc;
	if (l->version2)
		return MARK_VERSION2;
	if (l->marked.option)
		return MARK_MARKED;
	rc = place_behind(skb, p, l, place);
	if (rc == MARK_OK && place->join &&
	    (l->dest.size + PDM_HEADER > 256 * 8 || l->dest.others >= OPTIONS_RECEIVER ||
	     l->dest.options + 2 > OPTIONS_MAX))
		return MARK_FULL_HEADER;
	return rc;
}

/* A header with the option alone. */
static __always_inline void write_header(__u64 *space, __u8 proto, const struct pdm_words *w)
{
	space[0] = bpf_cpu_to_be64((__u64)proto << 56 | (__u64)(PDM_HEADER / 8 - 1) << 48 |
				   (__u64)(PDM_OPTION << 8 | PDM_LEN) << 32 | w->numbers >> 16);
	space[1] = bpf_cpu_to_be64(w->numbers << 48 | w->deltas << 16 | OPTION_PADN << 8);
}

/* Writes header or option into the space, and the byte before it that names or counts it. */
static __always_inline int write_option(struct __sk_buff *skb, const struct mark_place *place,
					const struct pdm_words *w)
{
	__u32 upper = place->upper, link = place->link, join = place->join;
	struct frame f = frame_of(skb);
	__u64 *space;
	__u8 *byte;

	if (upper > HEADERS_MAX || link > HEADERS_MAX || join > HEADERS_MAX)
		return MARK_BROKEN;
	space = f.data + upper;
	byte = f.data + (join ? join + 1 : link);
	if ((void *)(space + 2) > f.end || (void *)(byte + 1) > f.end)
		return MARK_BROKEN;
	if (join) {
		space[0] = bpf_cpu_to_be64((__u64)(PDM_OPTION << 8 | PDM_LEN) << 48 | w->numbers);
		space[1] = bpf_cpu_to_be64(w->deltas << 32 | OPTION_PADN << 24 | 2 << 16);
		*byte += PDM_HEADER / 8;
	} else {
		write_header(space, place->proto, w);
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
	struct pdm_verdict *v = &work->verdict;
	bool far;
	struct pdm_state *s = pdm_find(&work->key, &far);

	if (s && is_stale(s, now)) {
		if (far && !bpf_map_delete_elem(&pdm_states, &work->key))
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
 * A Linux router that gets a burst whole (GRO) reads the length of its TCP header
 * where that would be without ours: from the upper half of byte 12, which is the
 * first of DTLS. Kernels of 2026 (7.0.10, Debian's 6.12.117) drop the burst if that
 * is less than 5, and all refuse it if its segments seem to exceed the MTU: our
 * header and the least that TCP has make 9. A DTLS of 0x5000 to 0x9fff suits both;
 * that is a factor of two, so any time has one, of 15 bits or more. No DTLS becomes
 * 20 femtoseconds: the scale of 0 says that it is none.
 */
static __always_inline void suit_routers(struct pdm_words *w)
{
	__u64 dtls = w->deltas & WORDS_DTLS;

	if (dtls >= 0xa000) {
		w->deltas -= dtls - (dtls >> 1);
		w->numbers += 1ULL << WORDS_DTLS_SCALE;
	} else if (!dtls) {
		w->deltas |= 0x5000;
	}
}

/*
 * TCP or UDP directly behind the IPv6 header, no burst, and short enough for every IPv6 link: where the
 * header goes, and that it fits, is known from the parser. Such a packet has a length, and it can't overflow.
 */
static __always_inline bool is_small_upper(const struct packet *p, __u32 burst)
{
	return !burst && p->id.bytes + PDM_HEADER <= IPV6_MTU_MIN &&
	       p->l4_offset == p->l3_offset + sizeof(struct ipv6hdr) &&
	       (p->id.proto == IPPROTO_UDP || p->id.proto == IPPROTO_TCP);
}

/* Makes the space in such a packet. NULL: *rc is the reason. */
static __always_inline struct ipv6hdr *space_plain(struct __sk_buff *skb, __u64 flags, int *rc)
{
	void *ip;

	*rc = MARK_NO_SPACE;
	if (space_grow(skb, PDM_HEADER, BPF_ADJ_ROOM_NET, flags))
		return NULL;
	*rc = MARK_BROKEN;
	ip = (void *)(long)skb->data + (cfg_features & FEATURE_NO_LINK ? 0 : sizeof(struct ethhdr));
	if (ip + sizeof(struct ipv6hdr) + PDM_HEADER > (void *)(long)skb->data_end)
		return NULL;
	*rc = MARK_OK;
	return ip;
}

/* Writes the header, and into the IPv6 header that it is there. */
static __always_inline void write_plain(struct ipv6hdr *ip, __u8 proto, const struct pdm_words *w)
{
	ip->payload_len = bpf_htons(bpf_ntohs(ip->payload_len) + PDM_HEADER);
	ip->nexthdr = IPPROTO_DSTOPTS;
	write_header((void *)(ip + 1), proto, w);
}

static __always_inline void note_sent(struct pdm_state *s, const struct packet *p)
{
	s->out_iface = p->id.iface;
	s->out_meta = p->id.meta;
	s->out_dport = p->id.dport;
}

static __noinline int report_marked(const struct packet *p, const struct mark_key *key, __u64 now,
				    const struct pdm_option *o)
{
	struct pdm_event *e = begin_event(p, key, now);

	if (!e)
		return 0;
	encode(o, e->option);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/* Whether the packet takes an option, and where. */
static __always_inline int locate(struct __sk_buff *skb, const struct packet *p,
				  struct mark_layout *l, struct mark_place *place)
{
	int rc = place_first(skb, p, PDM_HEADER, place);

	if (rc != MARK_OK)
		return rc;
	return is_extension(place->proto, true) ? find_place(skb, p, l, place) : MARK_OK;
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

/*
 * What a packet's flow has shown so far: MARK_OK, or why this packet is not marked
 * whatever its length.
 */
static __always_inline int guard_packet(struct __sk_buff *skb, const struct packet *p,
					struct pdm_state *s, struct mark_guard *g,
					struct pdm_work *work, __u64 now)
{
	__u32 named = 0;
	bool heard = false;
	int rc;

	work->segment.tcp = p->id.proto == IPPROTO_TCP;
	work->segment.tried = false;
	if (work->segment.tcp)
		return guard_tcp(skb, p, g, &work->key, now, &work->segment, cfg_pdm_closed_domain);
	if (s) {
		named = s->rounds ? s->echoed : 0;
		heard = WHOLE(s->rx) != WHOLE(s->rx_reported);
	}
	rc = guard_datagram(g, &work->key, now, named, heard);
	if (rc != MARK_TRY)
		return rc;
	work->segment.tried = true;
	return MARK_OK;
}

/*
 * Whether the packet may grow by the mark, and by what another stage adds: *with, which is 0 where
 * only the mark fits.
 */
static __always_inline int fit_with(struct __sk_buff *skb, const struct packet *p,
				    struct mark_guard *g, struct mark_segment *seg, __u64 now,
				    __u32 *with)
{
	int rc;

	if (cfg_pdm_packets && skb->gso_size)
		return MARK_BURST;
	if (*with) {
		rc = fit(skb, p, g, seg, now, PDM_HEADER + *with, ioam_grows());
		if (rc == MARK_OK)
			return rc;
		*with = 0;
		ioam_leaves(skb, rc);
	}
	rc = fit(skb, p, g, seg, now, PDM_HEADER, 0);
	/* Unmarked, it can show that such packets arrive. */
	if (rc != MARK_OK && seg->tcp && seg->len <= 0xffff)
		guard_sent(g, seg, false, now);
	return rc;
}

/* Makes the space in any packet, and fills in what IOAM adds. MARK_OK or a reason. */
static __always_inline int space_between(struct __sk_buff *skb, const struct packet *p,
					 struct pdm_work *work, __u32 with, const bool joins)
{
	struct mark_place *place = &work->place;
	struct space gap;
	int rc = mark_reason_of(
		space_make(skb, p->l3_offset, PDM_HEADER + with, work->segment.flags, &gap));

	if (rc != MARK_OK)
		return rc;
	if (joins && with && ioam_insert_gap(skb, &gap, place) != MARK_OK)
		return MARK_BROKEN;
	if (place->upper != gap.at &&
	    space_forward(skb, &gap, place->upper + PDM_HEADER) != SPACE_OK)
		return MARK_BROKEN;
	return MARK_OK;
}

/*
 * What pdm_mark() does, with a reason for what it does not. joins: IOAM may insert into the same
 * packet.
 */
static __always_inline int mark(struct __sk_buff *skb, struct packet *p, struct pdm_work *work,
				const bool joins)
{
	__u32 generation = policy_generation;
	__u64 now, hash = p->hash, *unnamed = unnamed_slot(hash);
	struct pdm_words words;
	struct mark_place *place = &work->place;
	__u32 burst = skb->gso_size, with = 0;
	struct mark_guard *guard;
	struct pdm_state *s;
	struct ipv6hdr *ip = NULL;
	bool plain = false;
	int rc, why;

	if (!unnamed || *unnamed == unnamed_tag(hash, generation))
		return MARK_NOT_NAMED;
	now = mark_now();
	key_of(p, false, MARK_PDM, &work->key);
	s = find_state(p, work, now, generation);
	if (!s && work->verdict.policy < 0) {
		if (work->verdict.policy == POLICY_HELD)
			return MARK_ADDRESS;
		*unnamed = unnamed_tag(hash, generation);
		return MARK_NOT_NAMED;
	}
	rc = may_mark(skb, p, cfg_pdm_closed_domain);
	if (rc == MARK_OK) {
		/* Of both stages together, the verifier would look at too much. */
		plain = !joins && is_small_upper(p, burst);
		if (!plain)
			rc = locate(skb, p, &work->layout, place);
	}
	if (rc != MARK_OK) {
		if (s)
			guard_skip(skb, p, &s->guard, &work->segment);
		return rc;
	}
	guard = s ? &s->guard : &work->fresh.guard;
	if (!s)
		guard_begin(guard, &work->key, now);
	rc = guard_packet(skb, p, s, guard, work, now);
	/* Packets of datagrams are counted before one is tried. */
	if (rc == MARK_UNPROVEN && !s && !work->segment.tcp)
		new_state(skb, p, work, now, generation, &why);
	if (rc != MARK_OK)
		return rc;
	if (s && is_limited(s, p, now))
		return MARK_LIMITED;
	if (joins)
		with = ioam_joins(skb, guard,
				  work->segment.tcp ? guard_risks(guard) : work->segment.tried);
	if (plain) {
		fit_small(&work->segment, p->id.bytes, PDM_HEADER);
	} else {
		rc = fit_with(skb, p, guard, &work->segment, now, &with);
		if (rc != MARK_OK)
			return rc;
	}
	if (!s) {
		s = new_state(skb, p, work, now, generation, &rc);
		if (!s)
			return rc;
		guard = &s->guard;
	}
	if (plain)
		ip = space_plain(skb, work->segment.flags, &rc);
	else
		rc = space_between(skb, p, work, with, joins);
	if (rc != MARK_OK)
		return rc;
	words = pdm_send(s, now, !is_bare(p));
	if (burst)
		suit_routers(&words);
	if (ip) {
		write_plain(ip, p->id.proto, &words);
	} else {
		rc = write_option(skb, place, &words);
		if (rc != MARK_OK)
			return rc;
	}
	if (cfg_pdm_raw)
		words_unpack(&words, &work->option);
	note_sent(s, p);
	limit_count(s, p);
	if (work->segment.tcp && !(guard->flags & GUARD_PASSED))
		guard_risk(&work->key, now);
	if (work->segment.tcp)
		guard_sent(guard, &work->segment, true, now);
	else if (work->segment.tried)
		guard_tried(guard, &work->key, now);
	if (cfg_pdm_raw)
		report_marked(p, &work->key, now, &work->option);
	if (joins && with)
		ioam_joined(p, work->segment.len, PDM_HEADER + with, now);
	account_mark(skb, p, PDM_HEADER + with);
	return MARK_OK;
}

static __always_inline int mark_and_count(struct __sk_buff *skb, struct packet *p, const bool joins)
{
	struct pdm_work *work = get_work();
	int rc;

	if (!p || !work)
		return TC_ACT_UNSPEC;
	rc = mark(skb, p, work, joins);
	if (rc == MARK_OK)
		work->totals.marked++;
	else if (rc != MARK_NOT_NAMED)
		pdm_count(skb, DIRECTION_EGRESS, rc);
	return rc == MARK_BROKEN ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/*
 * TC_ACT_UNSPEC, or TC_ACT_SHOT. Not static: verified alone and once, whatever
 * leads to it.
 */
__feature(FEATURE_PDM) __noinline int pdm_mark_ipv6(struct __sk_buff *skb, struct packet *p)
{
	return mark_and_count(skb, p, false);
}

/* Likewise, where IOAM inserts, too: what only that needs would cost PDM some 30 instructions. */
__feature(FEATURE_PDM) __feature(FEATURE_IOAM) __noinline
	int pdm_mark_joined(struct __sk_buff *skb, struct packet *p)
{
	return mark_and_count(skb, p, true);
}

static __always_inline int pdm_mark(struct __sk_buff *skb, struct packet *p)
{
	if (!(p->id.meta >> META_IPV6_SHIFT & 1))
		return TC_ACT_UNSPEC;
	return cfg_features & FEATURE_IOAM ? pdm_mark_joined(skb, p) : pdm_mark_ipv6(skb, p);
}

#endif

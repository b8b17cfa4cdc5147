/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads the PDM option of packets that arrive (RFC 8250).
 *
 * In: a parsed packet. Out: the flow's state knows of it, and its delays, if
 * there is a state: receiving makes none. The packet is not changed here, but
 * the stage reports where an option is that pdm_strip() can remove. Called at tc
 * ingress, before the flow is accounted.
 */
#ifndef WAYMARK_PDM_READ_H
#define WAYMARK_PDM_READ_H

#include "lock.h"

#define READ_OK (-1)
#define READ_NOTHING (-2) /* no option there */

/* The usual form: the option alone in a header that is the only one. */
static __always_inline bool is_plain(const __u8 *header)
{
	return header[1] == PDM_HEADER / 8 - 1 && header[2] == PDM_OPTION && header[3] == PDM_LEN &&
	       header[14] == OPTION_PADN && header[15] == 0;
}

/* How pdm_strip() would remove what the walk found. */
static __always_inline void find_cut(struct __sk_buff *skb, struct pdm_work *work)
{
	const struct mark_layout *l = &work->layout;
	const struct mark_header *h = &l->marked;
	struct pdm_cut *cut = &work->cut;
	__u8 pad[4] = {};

	if (h->offset + h->size > l->chain.offset || l->authenticated || l->fragment)
		return;
	if (h->size == PDM_HEADER && !h->others) {
		cut->offset = h->offset;
		cut->link = l->header_link;
		return;
	}
	/* As pdm_mark() joins: the option and four bytes of padding end the header. */
	if (h->option + PDM_HEADER != h->offset + h->size ||
	    bpf_skb_load_bytes(skb, h->option + PDM_SIZE, pad, sizeof(pad)) ||
	    pad[0] != OPTION_PADN || pad[1] != sizeof(pad) - 2)
		return;
	cut->offset = h->option;
	cut->joined = h->offset;
}

/* The option of a packet with extension headers. READ_OK, READ_NOTHING or a reason. */
static __always_inline int find_option(struct __sk_buff *skb, const struct packet *p,
				       struct pdm_work *work)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct pdm_option *o = &work->sample.option;
	struct mark_layout *l = &work->layout;
	struct pdm_cut *cut = &work->cut;
	__u32 l3 = p->l3_offset;
	__u8 option[PDM_SIZE];
	struct ipv6hdr *ip;
	int rc;

	if (l3 > HEADERS_MAX)
		return READ_NOTHING;
	ip = data + l3;
	if ((void *)(ip + 1) > end)
		return READ_NOTHING;
	if (ip->nexthdr == IPPROTO_DSTOPTS && !p->fragment &&
	    p->l4_offset == l3 + sizeof(*ip) + PDM_HEADER && (void *)(ip + 1) + PDM_HEADER <= end &&
	    is_plain((__u8 *)(ip + 1))) {
		decode((__u8 *)(ip + 1) + 2, o);
		cut->offset = l3 + sizeof(*ip);
		cut->link = l3 + offsetof(struct ipv6hdr, nexthdr);
		return READ_OK;
	}
	rc = find_layout(skb, l3, l);
	if (rc != WALK_OK)
		return rc;
	if (l->version2)
		return MARK_VERSION2;
	if (!l->marked.option)
		return READ_NOTHING;
	if (p->fragment == FRAGMENT_LATER)
		return MARK_FRAGMENT;
	if (bpf_skb_load_bytes(skb, l->marked.option, option, sizeof(option)))
		return MARK_MALFORMED;
	decode(option, o);
	find_cut(skb, work);
	return READ_OK;
}

static __noinline int report_read(const struct packet *p, const struct mark_key *key, __u64 now,
				  const struct pdm_sample *sample)
{
	struct pdm_event *e = begin_event(p, key, now);

	if (!e)
		return 0;
	e->arrival = sample->arrival;
	e->suspicion = sample->suspicion;
	e->has = sample->has;
	e->server = sample->server;
	e->network = sample->network;
	encode(&sample->option, e->option);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/*
 * A packet may pass several interfaces on its way in, a port and then its bridge:
 * it is read on the first, where its number is new. So a flow moves to another
 * interface with its first packet there that is believed.
 */
static __always_inline bool is_elsewhere(const struct pdm_state *s, const struct packet *p,
					 __u16 psn)
{
	__s16 behind = s->highest - psn;

	return s->in_iface != p->id.iface && s->in_iface && s->span && behind >= 0 &&
	       behind < SEQUENCE_WINDOW && s->seen >> (behind & 63) & 1;
}

/* Where packets of the flow are read. */
static __always_inline void note_received(struct pdm_state *s, const struct packet *p)
{
	s->in_iface = p->id.iface;
	s->in_meta = p->id.meta;
	s->in_dport = p->id.dport;
}

/* Puts a received option into the flow's state. */
static __always_inline int take(struct __sk_buff *skb, const struct packet *p,
				struct pdm_work *work)
{
	struct pdm_sample *sample = &work->sample;
	struct pdm_state *s;
	__u64 now;
	bool far;

	key_of(p, true, MARK_PDM, &work->key);
	s = pdm_find(&work->key, &far);
	if (!s)
		return PDM_NO_STATE;
	now = mark_now();
	if (is_stale(s, now))
		return PDM_NO_STATE;
	sample->word = word_of(skb, p);
	sample->bare = is_bare(p);
	if (lacks_checksum(p, sample->word) && !s->no_checksum)
		return PDM_CHECKSUM;
	if (!lock_word(&s->lock)) {
		note_missed(s, &sample->option);
		return PDM_CONTENDED;
	}
	if (is_elsewhere(s, p, sample->option.psntp)) {
		unlock_word(&s->lock);
		return PDM_ELSEWHERE;
	}
	measure_delays(s, sample, now);
	if (sample->suspicion != SUSPICION_NONE)
		s->suspicious++;
	if (sample->arrival <= ARRIVAL_RESTART)
		note_received(s, p);
	if (sample->has)
		add_delays(work, s);
	age_limit(&s->tx, WHOLE(s->tx), now);
	unlock_word(&s->lock);
	if (cfg_pdm_raw)
		report_read(p, &work->key, now, sample);
	return READ_OK;
}

/*
 * 1 where pdm_strip() can take an option out, else 0. Not static: verified alone
 * and once, whatever leads to it.
 */
__feature(FEATURE_PDM) __noinline int pdm_read_ipv6(struct __sk_buff *skb, const struct packet *p)
{
	struct pdm_work *work = get_work();
	int rc;

	if (!p || !work)
		return 0;
	__builtin_memset(&work->cut, 0, sizeof(work->cut));
	__builtin_memset(&work->sample, 0, sizeof(work->sample));
	rc = find_option(skb, p, work);
	if (rc == READ_OK)
		rc = take(skb, p, work);
	if (rc == READ_OK)
		work->totals.read++;
	else if (rc != READ_NOTHING)
		pdm_count(skb, DIRECTION_INGRESS, rc);
	return work->cut.offset != 0;
}

/*
 * A Packet Too Big, which ioam_error() has read before, where there is IOAM. Whoever forges such a message needs to know as much as for one
 * that the stack believes, and a TCP sequence number; and can do no more than that large packets
 * of this flow's destination go unmarked for ten minutes.
 */
__feature(FEATURE_PDM) __noinline int pdm_too_big(struct __sk_buff *skb, const struct packet *p)
{
	struct mark_quote *q = quote_of_cpu();
	struct pdm_state *s;
	__u64 now;
	bool far;

	if (!p || !q)
		return 0;
	if (!(cfg_features & FEATURE_IOAM && ioam_inserts()))
		quote_read(skb, p);
	if (!q->whole)
		return 0;
	q->key.kind = MARK_PDM;
	s = pdm_find(&q->key, &far);
	now = mark_now();
	if (s && !is_stale(s, now))
		learn_too_big(skb, p, &s->guard, q, now, PDM_HEADER);
	return quote_report(skb, p);
}

/* True where pdm_strip() can take an option out. */
static __always_inline bool pdm_read(struct __sk_buff *skb, const struct packet *p)
{
	if (!(p->id.meta >> META_IPV6_SHIFT & 1) || p->id.meta >> META_TUNNEL_SHIFT & 7)
		return false;
	if (p->l4_offset != p->l3_offset + sizeof(struct ipv6hdr))
		return pdm_read_ipv6(skb, p);
	if (p->id.proto == IPPROTO_ICMPV6 && p->id.dport == bpf_htons(ICMPV6_PACKET_TOO_BIG << 8))
		pdm_too_big(skb, p);
	return false;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What is kept of a flow that is marked: how old it is, and what a packet that is
 * sent takes from it. near.h finds it, create.h makes it.
 *
 * Input: the state of a flow. Output: the option for its next packet. Called by both
 * stages.
 */
#ifndef WAYMARK_PDM_STATE_H
#define WAYMARK_PDM_STATE_H

/*
 * Written and read by the programs; the agent reads it at each drain and deletes
 * what is older than the lifetime. Sized by pdm.state.max_entries, less those that
 * have places (near.h), and somewhat larger. No state is made that would push out another: pdm_vacant. Should one be
 * pushed out all the same, it is the least recently used; the agent counts those.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct mark_key);
	__type(value, struct pdm_state);
} pdm_states SEC(".maps");

#define STAMP_TIME_BITS (64 - PSN_BITS)

static __always_inline __u64 stamp(__u64 now, __u16 psn)
{
	__u64 s = now << PSN_BITS | psn;

	return s ?: 1 << PSN_BITS; /* 0 is "never" */
}

/* The clocks of two processors differ by far less than this: 18 minutes. */
#define CLOCK_AHEAD (1ULL << CLOCK_AHEAD_SHIFT)

/*
 * ns from a stamp to now; 0 where another processor's clock was ahead. Stamps wrap
 * after 78 hours, so nothing may be older than 77: see age_limit().
 */
static __always_inline __u64 since(__u64 now, __u64 stamp)
{
	__u64 d = ((now << PSN_BITS) - (stamp >> PSN_BITS << PSN_BITS)) >> PSN_BITS;

	return d >= (1ULL << STAMP_TIME_BITS) - CLOCK_AHEAD ? 0 : d;
}

/* What is older counts as this old: 36 h, longer than the longest lifetime. */
#define AGE_MAX (36 * 3600 * 1000000000ULL)

/*
 * Keeps a stamp from growing so old that it would seem new: a flow may go on for
 * days in one direction. Called at least once in the lifetime of a state. Returns
 * the stamp that is there now.
 */
static __always_inline __u64 age_limit(__u64 *at, __u64 was, __u64 now)
{
	__u64 limited;

	if (!was || since(now, was) <= AGE_MAX)
		return was;
	limited = stamp(now - AGE_MAX, was);
	return __sync_val_compare_and_swap(at, was, limited) == was ? limited : was;
}

/*
 * A state whose last packet, marked or not and in either direction, is older than
 * the lifetime. One whose flow fell back stays until that ends, or it would be
 * tried again at once.
 */
static __always_inline bool is_stale(const struct pdm_state *s, __u64 now)
{
	__u64 tx = WHOLE(s->tx), rx, checked;

	if (tx && since(now, tx) <= cfg_pdm_lifetime)
		return false;
	rx = WHOLE(s->rx);
	checked = WHOLE(s->guard.checked);
	if (!tx && !checked)
		return false;
	return (__s64)(now - checked) > (__s64)cfg_pdm_lifetime && now >= s->guard.fallback &&
	       !(rx && since(now, rx) <= cfg_pdm_lifetime);
}

/* TCP without payload: it acknowledges, but neither asks nor answers. */
static __always_inline bool is_bare(const struct packet *p)
{
	return p->id.proto == IPPROTO_TCP && !p->id.payload;
}

/* Bytes 4 to 7 of the transport header; see sequence_observe(). */
static __always_inline __u32 word_of(struct __sk_buff *skb, const struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 at = p->l4_offset;
	__be32 *word;

	if (at > HEADERS_MAX)
		return 0;
	word = data + at + 4;
	return (void *)(word + 1) > end ? 0 : bpf_ntohl(*word);
}

/*
 * UDP over IPv6 without a checksum: the stack drops it (RFC 8200 section 8.1), but
 * for tunnels that agreed on it (RFC 6935). Other checksums are not verified:
 * whoever forges a packet can compute them.
 */
static __always_inline bool lacks_checksum(const struct packet *p, __u32 word)
{
	return p->id.proto == IPPROTO_UDP && !(word & 0xffff) && !p->fragment;
}

/*
 * The option for a packet sent now; notes that it was sent, and whether it asks
 * for something. DTLS has two branches: how long the answer took when one came
 * since the previous packet, else how long ago that was sent. Two processors
 * never get the same number.
 */
static __always_inline struct pdm_words pdm_send(struct pdm_state *s, __u64 now, bool asks)
{
	__u16 psn = __sync_fetch_and_add(&s->psn, 1);
	__u64 sent = stamp(now, psn), rx = WHOLE(s->rx), tx;
	struct pdm_words w = { .numbers = (__u64)psn << 16 };
	struct pdm_delta d;

	/* Not exchanged (5 ns): two processors that send at once may both name the packet before. */
	tx = WHOLE(s->tx);
	WHOLE(s->tx) = sent;
	if (asks)
		WHOLE(s->request) = sent;
	if (rx) {
		d = pdm_scale(since(now, rx));
		w.numbers |= (__u64)d.scale << 40 | (__u16)rx;
		w.deltas = (__u64)d.delta << 16;
	}
	if (tx) {
		d = pdm_scale(since(rx != WHOLE(s->rx_reported) ? rx >> PSN_BITS : now, tx));
		w.numbers |= (__u64)d.scale << WORDS_DTLS_SCALE;
		w.deltas |= d.delta;
	}
	WHOLE(s->rx_reported) = age_limit(&s->rx, rx, now);
	return w;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What is kept of a flow that is marked: by whom it is found, how it comes and
 * goes, and what a packet that is sent takes from it.
 *
 * Input: the key of a flow. Output: its state, or the option for its next packet. A
 * state is made for a packet that is to be marked, never for one that was
 * received (RFC 8250 section 3.5.1). Called by both stages.
 */
#ifndef WAYMARK_PDM_STATE_H
#define WAYMARK_PDM_STATE_H

/*
 * Written and read by the programs; the agent reads it at each drain and deletes
 * what is older than the lifetime. Sized by pdm.state.max_entries, and somewhat
 * larger. No state is made that would push out another: pdm_vacant. Should one be
 * pushed out all the same, it is the least recently used; the agent counts those.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct mark_key);
	__type(value, struct pdm_state);
} pdm_states SEC(".maps");

/*
 * Places for states, one for each flow by its hash: a flow whose place is free when it begins has its state
 * there, all others are in the map above, which takes three times as long to look in. Written and read by
 * the programs, read by the agent. What is stale is a free place.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* so that places begin at cache lines */
	__uint(max_entries, 1); /* up to 1 << NEAR_BITS where PDM is on */
	__type(key, __u32);
	__type(value, struct pdm_near);
} pdm_near SEC(".maps");

/*
 * New states in the running second: second << 32 | number, for all processors
 * together. Refused packets only read it, so that in a flood the processors
 * don't fight for its cache line.
 */
volatile __u64 pdm_budget SEC(".data.pdm");

/*
 * States that may be made until the next drain, which writes it: those that live
 * keep their place, whatever new flows there are.
 */
volatile __s64 pdm_vacant SEC(".data.vacant");

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

/* Not keyed: whoever finds flows that meet there makes them as slow as without places. */
static __always_inline struct pdm_near *near_of(const struct mark_key *key)
{
	const __u64 *word = (const void *)key;
	__u64 hash = word[1] * 3 + word[3] + word[4] * 5;
	__u32 index;

	index = mix(hash) >> (64 - NEAR_BITS);
	return bpf_map_lookup_elem(&pdm_near, &index);
}

static __always_inline bool near_has(struct pdm_near *n, const struct mark_key *key)
{
	const __u64 *a = (const void *)&n->key, *b = (const void *)key;

	return WHOLE(n->owner) > NEAR_FREE &&
	       !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]));
}

/* The state of a flow, however old. far: it is in the map of states. */
static __always_inline struct pdm_state *pdm_find(const struct mark_key *key, bool *far)
{
	struct pdm_near *n = near_of(key);

	*far = !n || !near_has(n, key);
	return *far ? bpf_map_lookup_elem(&pdm_states, key) : &n->state;
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
 * New states that a second may bring: as configured, or a part of the vacant ones,
 * so that a flood leaves places for other new flows, however long states live.
 */
static __always_inline __u32 new_per_second(void)
{
	__s64 vacant = pdm_vacant;

	return cfg_pdm_new_per_second ?: vacant > 0 ? vacant / 16 + 1 : 0;
}

/* Takes one of the new states that this second allows. */
static __always_inline bool take_second(__u64 now)
{
	__u64 second = now / 1000000000, was = pdm_budget, fresh = second << 32 | 1;
	__u32 limit = new_per_second();

	if (was >> 32 != (__u32)second &&
	    __sync_val_compare_and_swap(&pdm_budget, was, fresh) == was)
		return true;
	if ((__u32)pdm_budget >= limit)
		return false;
	was = __sync_fetch_and_add(&pdm_budget, 1);
	return (__u32)was < limit;
}

static __always_inline bool take_budget(__u64 now)
{
	if (pdm_vacant <= 0 || !take_second(now))
		return false;
	return __sync_fetch_and_add(&pdm_vacant, -1) > 0;
}

/*
 * Puts a new state into the flow's place, unless that belongs to another flow: *mine is false then. NULL
 * otherwise: another processor is about to make a state there.
 */
static __always_inline struct pdm_state *near_take(struct pdm_work *work, __u64 now, bool *mine)
{
	struct pdm_near *n = near_of(&work->key);
	__s64 was;

	*mine = false;
	if (!n)
		return NULL;
	was = WHOLE(n->owner);
	if (was > NEAR_FREE && !is_stale(&n->state, now)) {
		*mine = near_has(n, &work->key);
		return *mine ? &n->state : NULL;
	}
	*mine = true;
	if (was == NEAR_BUSY || __sync_val_compare_and_swap(&n->owner, was, NEAR_BUSY) != was)
		return NULL;
	n->key = work->key;
	n->state = work->fresh;
	__sync_lock_test_and_set(&n->owner, work->fresh.id);
	work->totals.created++;
	if (was)
		work->totals.renewed++;
	return &n->state;
}

/*
 * Makes a state, with the guard that its first packet began, or finds the one that
 * another processor just made. NULL: the budget is used up or the map takes no
 * more, and *why says which.
 */
static __noinline struct pdm_state *pdm_create(struct pdm_work *work, __u64 now, int *why)
{
	struct pdm_state *fresh = &work->fresh;
	struct mark_guard guard = fresh->guard;
	struct pdm_totals *stats = &work->totals;
	struct pdm_state *s;
	bool mine;

	if (!take_budget(now)) {
		stats->refused++;
		*why = MARK_NEW_REFUSED;
		return NULL;
	}
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->guard = guard;
	fresh->psn = bpf_get_prandom_u32() & 0xffff;
	fresh->psn_first = fresh->psn;
	fresh->id = (__u64)bpf_get_smp_processor_id() << STATE_CPU_SHIFT | (stats->created + 1);
	*why = MARK_NEW_FAILED;
	s = near_take(work, now, &mine);
	if (mine)
		return s;
	if (!bpf_map_update_elem(&pdm_states, &work->key, fresh, BPF_NOEXIST))
		stats->created++;
	return bpf_map_lookup_elem(&pdm_states, &work->key);
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

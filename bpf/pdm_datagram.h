/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which packets may be marked of flows that acknowledge nothing: UDP, echo, others.
 *
 * Input: a packet on its way out, and its flow's state. Output: whether it may be
 * marked. Called by pdm_mark.h.
 *
 * That a marked packet arrived is known when the peer names it in a mark of its
 * own, or from other flows to the same destination. Where neither was seen
 * recently, a few are tried, apart from each other, for all flows of the
 * destination together; then none for a while, which grows. A flow whose packets
 * were named, and no longer are, does the same.
 */
#ifndef WAYMARK_PDM_DATAGRAM_H
#define WAYMARK_PDM_DATAGRAM_H

/* So often a flow asks what is known of its path. */
#define CHECK_NS 1000000000ULL

/* Packets to try, of a flow and to a destination, and of a flow that was named. */
#define TRIES_FLOW 4
#define TRIES_PATH 8
#define TRIES_NAMED 8

/* Packets tried are so far apart, unless the peer's mark came in between. */
#define TRY_GAP_NS 125000000ULL

/* How long no more are tried: one minute at first, ten at most. */
static __always_inline __u64 quiet_time(__u8 backoff)
{
	__u64 time = FALLBACK_MIN_NS << (backoff & 3);

	return backoff > 3 || time > FALLBACK_NS ? FALLBACK_NS : time;
}

static __noinline int guard_refresh(struct pdm_guard *g, const struct pdm_key *key, __u64 now)
{
	struct pdm_path_key at;
	struct pdm_path *path = path_of(key, &at);

	g->flags &= ~GUARD_PASSED;
	if (path && path->passed > g->watched) {
		/* Marked packets of others arrive again. */
		g->watched = path->passed;
		g->fallback = 0;
		g->strikes = 0;
	}
	guard_ask(g, path, now);
	if (path && !(g->flags & (GUARD_PASSED | GUARD_NAMED)) && path->quiet > g->fallback)
		g->fallback = path->quiet;
	return 0;
}

/* The peer named a packet that it had not named before. */
static __noinline int guard_named(struct pdm_guard *g, const struct pdm_key *key, __u64 now)
{
	bool known = g->flags & GUARD_NAMED && now - g->checked <= CHECK_NS;
	struct pdm_path *path;

	g->flags |= GUARD_NAMED;
	g->fallback = 0;
	g->strikes = 0;
	g->backoff = 0;
	g->struck = now;
	if (known)
		return 0;
	path = path_make(key);
	if (!path)
		return 0;
	path_passed(path, now);
	g->watched = now;
	guard_ask(g, path, now);
	return 0;
}

/* MARK_OK, or why this packet is not marked. s: NULL for the first one. */
static __noinline int guard_datagram(struct pdm_state *s, struct pdm_guard *g,
				     const struct pdm_key *key, __u64 now)
{
	/* What was named when the packet before was sent is in watch_seq. */
	__u32 named = s && s->rounds ? s->echoed : 0, before = g->watch_seq;
	bool recent = is_recent(g->struck, now, TRY_GAP_NS);

	g->watch_seq = named;
	if ((__s32)(named - before) > 0)
		guard_named(g, key, now);
	else if (now - g->checked > CHECK_NS)
		guard_refresh(g, key, now);
	if (now < g->fallback)
		return PDM_FALLBACK;
	if (!(g->flags & GUARD_NAMED) && g->flags & GUARD_PASSED)
		return MARK_OK;
	if (g->strikes >= (g->flags & GUARD_NAMED ? TRIES_NAMED : TRIES_FLOW)) {
		if (recent)
			return PDM_UNPROVEN;
		g->fallback = now + quiet_time(g->backoff);
		g->backoff += g->backoff < 4;
		g->flags &= ~(GUARD_NAMED | GUARD_PASSED);
		g->strikes = 0;
		PDM_STAT_ADD(fallbacks, 1);
		return PDM_FALLBACK;
	}
	if (!(g->flags & GUARD_NAMED) && recent && s && WHOLE(s->rx) == WHOLE(s->rx_told))
		return PDM_UNPROVEN;
	return MARK_OK;
}

/* A packet leaves with a mark, and nobody knows yet whether it will arrive. */
static __noinline int guard_tried(struct pdm_guard *g, const struct pdm_key *key, __u64 now)
{
	bool named = g->flags & GUARD_NAMED;
	struct pdm_path *path;

	if (named ? is_recent(g->struck, now, TRY_GAP_NS) : g->flags & GUARD_PASSED)
		return 0;
	g->struck = now;
	g->strikes++;
	if (named)
		return 0;
	path = path_make(key);
	if (!path || ++path->tries < TRIES_PATH)
		return 0;
	path->tries = 0;
	path->quiet = now + quiet_time(path->backoff);
	path->backoff += path->backoff < 4;
	return 0;
}

/*
 * What a packet's flow has shown so far: MARK_OK, or why this packet is not marked
 * whatever its length.
 */
static __always_inline int guard_packet(struct __sk_buff *skb, const struct packet *p,
					struct pdm_state *s, struct pdm_guard *g,
					struct pdm_work *work, __u64 now)
{
	work->segment.tcp = p->id.proto == IPPROTO_TCP;
	if (work->segment.tcp)
		return guard_tcp(skb, p, g, &work->key, now, &work->segment);
	return guard_datagram(s, g, &work->key, now);
}

#endif

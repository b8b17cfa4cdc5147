/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which packets may be marked of flows that acknowledge nothing: UDP, echo, others.
 *
 * Input: a packet on its way out, and its flow's state. Output: whether it may be
 * marked. Called by mark.h.
 *
 * A marked packet is known to have arrived when the peer names it in a mark of its
 * own. Other flows of the same service may show it, too. Where nothing shows
 * it, a mark may cost the packet, so few are tried:
 *
 * - not the first packets of a flow. A lost query or handshake costs seconds, and
 *   the peer has no state yet that could name it;
 * - never two in a row of a flow. What the application sends again arrives;
 * - one a second to a destination, unless the peer marks the flow, and after a few
 *   none for a time that grows. Where other services take marked packets, few go on
 *   to be tried, so that loss is measured of flows in one direction, too.
 *
 * A flow whose packets were named and no longer are is treated likewise.
 */
#ifndef WAYMARK_MARK_DATAGRAM_H
#define WAYMARK_MARK_DATAGRAM_H

/* Packets before the first that is tried; twice as many before each that follows. */
#define TRY_AFTER 3

/* Tries of a flow, of a flow that was named, to a destination, and there again. */
#define TRIES_FLOW 2
#define TRIES_NAMED 5
#define TRIES_PATH 4
#define TRIES_PATH_AGAIN 2

#define TRY_GAP_NS 1000000000ULL

/* How often a flow asks about its path while it is not known to take marks. */
#define CHECK_SOON_NS 100000000ULL

/* All packets are marked while the peer named one so recently. */
#define NAMED_NS 1000000000ULL

/* A flow falls back when none was named for so long: some peers rarely speak. */
#define UNNAMED_NS 10000000000ULL

/* How long no more are tried: one minute at first, ten at most. */
static __always_inline __u64 quiet_time(__u8 backoff)
{
	__u64 time = FALLBACK_MIN_NS << (backoff & 3);

	return backoff > 3 || time > FALLBACK_NS ? FALLBACK_NS : time;
}

__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int guard_refresh(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	struct mark_path *service, *path;
	struct mark_path_key at;
	bool own;

	if (!g || !key)
		return 0;
	service = path_of(key, PATH_SERVICE, &at);
	path = path_of(key, PATH_DESTINATION, &at);
	/* What the flow itself has shown. After a long silence it is worth no more than a new flow's. */
	own = is_recent(g->arrived, now, PATH_PASSED_LIFETIME);
	/* A datagram shows no length, so it has no better source. */
	g->shown = 0;
	g->flags &= ~GUARD_PASSED;
	if (service && !own && service->passed > g->struck) {
		g->fallback = 0;
		g->strikes = 0;
	}
	guard_consult(g, path, service, guard_lengths(key, path), now);
	/* Others may be about to learn what a flow that was named itself learns first. */
	if (own)
		g->flags &= ~GUARD_PASSED;
	else if (!(g->flags & GUARD_PASSED))
		guard_rest(g, path, now);
	return 0;
}

/* The peer named a packet that it had not named before. */
static __noinline int guard_named(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	bool known = is_recent(g->arrived, now, CHECK_NS) && now - g->checked <= CHECK_NS;

	g->arrived = now;
	g->fallback = 0;
	g->struck = 0;
	g->unmarked = 0;
	g->strikes = 0;
	g->backoff = 0;
	if (known)
		return 0;
	path_passes(key, now);
	return guard_refresh(g, key, now);
}

/* Marked packets of the flow are not known to arrive any more, or never were. */
static __noinline int guard_unnamed(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	if (is_recent(g->arrived, now, UNNAMED_NS))
		return MARK_UNPROVEN;
	if (g->arrived)
		path_fails(key, g->arrived);
	g->fallback = now + quiet_time(g->backoff);
	g->backoff += g->backoff < 4;
	g->arrived = 0;
	g->strikes = 0;
	MARK_STAT_ADD(key->kind, fallbacks, 1);
	return MARK_FALLBACK;
}

/*
 * Whether this is a packet to try. heard: the peer's mark came since the last one,
 * so it will name this one, if it arrives.
 */
static __noinline int guard_may_try(struct mark_guard *g, const struct mark_key *key, __u64 now,
				    bool heard)
{
	struct mark_path_key at;
	struct mark_path *path;
	bool takes;

	if (g->unmarked < TRY_AFTER << (g->strikes & 7) || is_recent(g->struck, now, TRY_GAP_NS))
		return MARK_UNPROVEN;
	path = path_of(key, PATH_DESTINATION, &at);
	takes = !g->arrived && path_takes(path, now);
	if (!takes && g->strikes >= (g->arrived ? TRIES_NAMED : TRIES_FLOW))
		return guard_unnamed(g, key, now);
	if (g->arrived)
		return MARK_OK;
	if (path &&
	    ((!takes && now < path->quiet) || (!heard && is_recent(path->tried, now, TRY_GAP_NS))))
		return MARK_UNPROVEN;
	return MARK_OK;
}

static __noinline int guard_ask(struct mark_guard *g, const struct mark_key *key, __u64 now,
				__u32 named, bool heard)
{
	__u32 before = g->named;
	int rc;

	g->named = named;
	if ((__s32)(named - before) > 0)
		guard_named(g, key, now);
	else if (now - g->checked > (g->flags & GUARD_PASSED ? CHECK_NS : CHECK_SOON_NS))
		guard_refresh(g, key, now);
	if (now < g->fallback)
		return MARK_FALLBACK;
	if (g->flags & GUARD_PASSED || is_recent(g->arrived, now, NAMED_NS))
		return MARK_OK;
	rc = guard_may_try(g, key, now, heard);
	if (rc == MARK_OK)
		return MARK_TRY;
	if (g->unmarked < 0xffff)
		g->unmarked++;
	return rc;
}

/*
 * MARK_OK, MARK_TRY, or why this packet is not marked. named: packets sent up to the newest that
 * the peer named; heard: as in guard_may_try(). Most packets are of flows whose marks arrive, and
 * of which nothing new is known: they save the call (6 ns).
 */
static __always_inline int guard_datagram(struct mark_guard *g, const struct mark_key *key,
					  __u64 now, __u32 named, bool heard)
{
	if (g->flags & GUARD_PASSED && g->named == named && now - g->checked <= CHECK_NS &&
	    now >= g->fallback)
		return MARK_OK;
	return guard_ask(g, key, now, named, heard);
}

/* A packet leaves with a mark, and nobody knows yet whether it will arrive. */
static __noinline int guard_tried(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	struct mark_path *path;

	g->struck = now;
	g->unmarked = 0;
	g->strikes += g->strikes < TRIES_NAMED;
	path = g->arrived ? NULL : path_make(key, PATH_DESTINATION);
	if (!path)
		return 0;
	path->tried = now;
	if (path_takes(path, now) || ++path->tries < TRIES_PATH)
		return 0;
	path->tries = TRIES_PATH - TRIES_PATH_AGAIN;
	path->quiet = now + quiet_time(path->backoff);
	path->backoff += path->backoff < 4;
	return 0;
}

#endif

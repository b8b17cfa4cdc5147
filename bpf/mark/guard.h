/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A mark must never stop a connection: which packets of a flow may be marked
 * without harm if the path drops marked packets, or packets of this length.
 *
 * Input: a TCP segment on its way out, and its socket. Output: whether it may be
 * marked, and what the acknowledgments so far show of the path. Called by
 * mark.h.
 *
 * What TCP sends again goes unmarked, so whatever a mark cost arrives in the end.
 * Where it is not known whether marked packets arrive, one segment at a time is
 * marked and watched: acknowledged without being sent again, it has shown that
 * they do. Each watched segment that is sent again is a strike. After one, or a few
 * in a row where marked packets arrived before, the flow falls back to unmarked
 * packets; after two such flows so does their service, unless marked packets of other
 * flows of it arrived recently, and likewise their destination. The same is done for
 * packets longer than any that arrived.
 *
 * A firewall may reject marked packets with a RST or an ICMPv6 error, which end the
 * connection: nothing is sent again. So one flow of a service at a time marks what is
 * not known to arrive. If nothing more is heard of it, others wait.
 *
 * An outage is no strike: the unmarked segment that is sent again must arrive.
 */
#ifndef WAYMARK_MARK_GUARD_H
#define WAYMARK_MARK_GUARD_H

/* Strikes until a flow falls back, if marked packets of it arrived or if not. */
#define STRIKES_PASSED 3
#define STRIKES_UNKNOWN 1
#define STRIKES_SIZE 2

/* Strikes closer than this are one loss. */
#define STRIKE_GAP_NS 50000000ULL

/* Likewise, of a segment that shows how long packets may be. */
#define SIZE_GAP_NS 1000000000ULL

/* A segment not sent again for so long has arrived, where nobody can be asked. */
#define WATCH_NS 1000000000ULL

/* How often a flow whose marked packets arrive shows it again. */
#define SHOW_NS 20000000000ULL

/* To this a flow's age is known; so often one of datagrams asks about its path. */
#define CHECK_NS 1000000000ULL

/* A burst of more segments is not put at risk. */
#define WATCH_SEGMENTS 4

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define TCP_OPTION_SACK 5

/* What is known of a path before a flow has shown anything. */
static __always_inline void guard_consult(struct mark_guard *g, const struct mark_path *path,
					  const struct mark_path *service,
					  const struct mark_path *lengths, __u64 now)
{
	g->checked = now;
	if (path_takes(service, now))
		g->flags |= GUARD_PASSED;
	if (service && now < service->blocked)
		g->fallback = service->blocked;
	if (path && now < path->blocked)
		g->fallback = path->blocked;
	if (!lengths)
		return;
	if (is_recent(lengths->shown_at, now, PATH_LIFETIME) && lengths->shown > g->shown)
		g->shown = lengths->shown;
	if (is_recent(lengths->narrowed, now, PATH_LIFETIME)) {
		g->narrowed = lengths->narrowed;
		g->mtu = lengths->mtu;
	}
}

/* Datagrams of a flow that begins rest with those to its destination, unless any marked packet arrives. */
static __always_inline void guard_rest(struct mark_guard *g, const struct mark_path *path,
				       __u64 now)
{
	if (path && !path_takes(path, now) && path->quiet > g->fallback)
		g->fallback = path->quiet;
}

/* What is known of lengths; path: what path_of() found for the destination. */
static __always_inline struct mark_path *guard_lengths(const struct mark_key *key,
						       struct mark_path *path)
{
	struct mark_path_key at;

	return key->kind == MARK_PDM ? path : path_of(key, PATH_LENGTHS, &at);
}

__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int guard_begin(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	struct mark_path *service, *path;
	struct mark_path_key at;

	if (!g || !key)
		return 0;
	service = path_of(key, PATH_SERVICE, &at);
	path = path_of(key, PATH_DESTINATION, &at);
	__builtin_memset(g, 0, sizeof(*g));
	guard_consult(g, path, service, guard_lengths(key, path), now);
	if (g->flags & GUARD_PASSED)
		return 0;
	if ((path && path->strikes) || (service && service->strikes))
		g->flags |= GUARD_CAREFUL;
	if (key->proto != IPPROTO_TCP)
		guard_rest(g, path, now);
	return 0;
}

/* The longest packet that the path is known to take, or more than any. */
static __always_inline __u32 guard_mtu(const struct mark_guard *g, __u64 now)
{
	return g->mtu && is_recent(g->narrowed, now, PATH_LIFETIME) ? g->mtu : 0xffffffff;
}

/* Whether a mark on the next segment may be lost, for all that is known. */
static __always_inline bool guard_risks(const struct mark_guard *g)
{
	return !(g->flags & GUARD_PASSED) || g->strikes > 1;
}

/* Packets longer than those that arrived do not: neither will others there. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int guard_narrow(struct mark_guard *g, const struct mark_key *key, __u64 now, __u32 mtu)
{
	struct mark_path *path;
	__u32 known;

	if (!g || !key)
		return 0;
	if (mtu < IPV6_MTU_MIN)
		mtu = IPV6_MTU_MIN;
	known = guard_mtu(g, now);
	if (mtu > known)
		return 0;
	if (mtu < known)
		MARK_STAT_ADD(key->kind, narrowed, 1);
	g->mtu = mtu;
	g->narrowed = now;
	if (g->shown > mtu)
		g->shown = mtu;
	path = path_make(key, PATH_LENGTHS);
	if (!path)
		return 0;
	if (!is_recent(path->narrowed, now, PATH_LIFETIME) || mtu <= path->mtu) {
		path->mtu = mtu;
		path->narrowed = now;
	}
	if (path->shown > mtu)
		path->shown = mtu;
	return 0;
}

/* Packets as long as this one no longer arrive for certain. */
static __noinline int guard_shrink(struct mark_guard *g, const struct mark_key *key, __u32 len)
{
	struct mark_path_key at;
	struct mark_path *path = path_of(key, PATH_LENGTHS, &at);

	if (g->shown > len)
		g->shown = len;
	if (path && path->shown > len)
		path->shown = len;
	return 0;
}

__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int guard_fall_back(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	struct mark_path *service;
	__u64 lifetime;
	bool passed;

	if (!g || !key)
		return 0;
	lifetime = key->kind == MARK_PDM ? cfg_pdm_lifetime : 0;
	passed = g->flags & GUARD_PASSED;
	/* Flows that never were answered must not fill the table of states. */
	if (lifetime < FALLBACK_MIN_NS)
		lifetime = FALLBACK_MIN_NS;
	if (passed || lifetime > FALLBACK_NS)
		lifetime = FALLBACK_NS;
	g->fallback = now + lifetime;
	g->flags &= ~GUARD_PASSED;
	g->strikes = 0;
	MARK_STAT_ADD(key->kind, fallbacks, 1);
	if (passed)
		path_fails(key, g->failing);
	service = path_make(key, PATH_SERVICE);
	/* This flow was not rejected: see guard_may_risk(). */
	if (service) {
		service->quiet = 0;
		service->backoff = 0;
	}
	/* Of both: only one may take marked packets. */
	passed = path_strike(service, now);
	if (path_strike(path_make(key, PATH_DESTINATION), now) || passed)
		MARK_STAT_ADD(key->kind, blocked, 1);
	return 0;
}

/* A marked packet was lost, or so it seems. */
static __noinline int guard_strike(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	__u8 enough = STRIKES_UNKNOWN;

	/* Of a tunnel, only what the flow itself has shown: its end may be gone since. */
	if (g->flags & GUARD_PASSED && (g->arrived || key->kind != MARK_IOAM_OUTER))
		enough = STRIKES_PASSED;
	if (is_recent(g->struck, now, STRIKE_GAP_NS) || now < g->fallback)
		return 0;
	g->struck = now;
	if (!g->strikes)
		g->failing = now;
	if (++g->strikes >= enough)
		guard_fall_back(g, key, now);
	return 0;
}

#endif

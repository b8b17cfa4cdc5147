/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What flows learned of the path to a destination, for flows that begin later.
 *
 * Input: a destination, and what a flow learned. Output: what is known. Called by
 * guard.h when a flow begins or learns something, and by too_big.h.
 *
 * Firewalls filter by protocol and port. So that marked packets arrive is known of
 * a service only, whatever arrives elsewhere; that they do not, and how long packets
 * may be, of the destination, too. The former is of one kind of marks, the latter of all. Where both ports may be a client's it is not
 * known which one is the service's: all such flows of a protocol are one service.
 */
#ifndef WAYMARK_MARK_PATH_H
#define WAYMARK_MARK_PATH_H

/*
 * Written and read by the programs, for destinations of marked flows only. When
 * full, the least recently used leaves, and is learned again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct mark_path_key);
	__type(value, struct mark_path);
} mark_paths SEC(".maps");

/* Every IPv6 link takes packets of this size (RFC 8200 section 5). */
#define IPV6_MTU_MIN 1280

/* What was learned of a path is forgotten after the time of a route exception. */
#define PATH_LIFETIME 600000000000ULL

/* A path that passed marked packets so recently is not taken to drop them. */
#define PATH_PASSED_LIFETIME 60000000000ULL

/* How long a flow, or a path, stays without marks. */
#define FALLBACK_NS 600000000000ULL
#define FALLBACK_MIN_NS 60000000000ULL

/* Flows in a row that fall back until their path does. */
#define STRIKES_PATH 2

/* These ports and higher ones may be a client's, here (ip_local_port_range) or there. */
const volatile __u32 cfg_mark_client_ports = 32768;

/* Whether something learned at a time, or never, is not older than its lifetime. */
static __always_inline bool is_recent(__u64 at, __u64 now, __u64 lifetime)
{
	return at && (__s64)(now - at) < (__s64)lifetime;
}

/*
 * Counts of what guards found out. Written by the programs, read by the agent; by
 * enum mark_kind.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MARK_KINDS);
	__type(key, __u32);
	__type(value, struct mark_totals);
} mark_stats SEC(".maps");

#define MARK_STAT_ADD(kind, field, n)                                               \
	do {                                                                        \
		__u32 kind_ = (kind);                                               \
		struct mark_totals *st_ = bpf_map_lookup_elem(&mark_stats, &kind_); \
		if (st_)                                                            \
			st_->field += (n);                                          \
	} while (0)

/* Of what something is known: lengths of the destination's path are of all kinds of marks. */
enum path_scope { PATH_DESTINATION, PATH_SERVICE, PATH_LENGTHS };

/* What is known of a flow's destination, or of its service there. */
static __always_inline struct mark_path *path_of(const struct mark_key *key, enum path_scope scope,
						 struct mark_path_key *path)
{
	bool service = scope == PATH_SERVICE;
	__u16 local = bpf_ntohs(key->lport), port = bpf_ntohs(key->rport);

	if (local < port)
		port = local;
	__builtin_memcpy(path->remote, key->remote, sizeof(path->remote));
	path->netns = key->netns;
	path->port = service && port < cfg_mark_client_ports ? bpf_htons(port) : 0;
	path->proto = service ? key->proto : 0;
	path->kind = scope == PATH_LENGTHS ? MARK_PDM : key->kind;
	return bpf_map_lookup_elem(&mark_paths, path);
}

/*
 * Makes an element where nothing is known. This and all other functions of this folder that are not
 * static are verified alone, and once: few packets need them, but each is called in several places.
 */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int path_begin(const struct mark_key *key, enum path_scope scope)
{
	struct mark_path none = {};
	struct mark_path_key at;

	if (key && !path_of(key, scope, &at))
		bpf_map_update_elem(&mark_paths, &at, &none, BPF_NOEXIST);
	return 0;
}

/* What is known of it; made where that is nothing. NULL: the map is full. */
static __always_inline struct mark_path *path_make(const struct mark_key *key,
						   enum path_scope scope)
{
	struct mark_path_key at;

	path_begin(key, scope);
	return path_of(key, scope, &at);
}

/*
 * A SYN or FIN of a flow has arrived. Flows with dynamic ports are of many services, which
 * need not wait for this one: it may only receive, and then shows nothing more.
 */
static __noinline int path_pool_ends_wait(const struct mark_key *key)
{
	struct mark_path_key at;
	struct mark_path *service = path_of(key, PATH_SERVICE, &at);

	if (!service || at.port)
		return 0;
	service->quiet = 0;
	service->backoff = 0;
	return 0;
}

/* Whether marked packets were known to arrive recently. */
static __always_inline bool path_takes(const struct mark_path *path, __u64 now)
{
	return path && is_recent(path->passed, now, PATH_PASSED_LIFETIME);
}

static __always_inline void path_pass(struct mark_path *path, __u64 now)
{
	if (!path)
		return;
	path->passed = now;
	path->quiet = 0;
	path->strikes = 0;
	path->tries = 0;
	path->backoff = 0;
}

/* A marked packet of a flow is known to have arrived. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int path_passes(const struct mark_key *key, __u64 now)
{
	if (!key)
		return 0;
	path_pass(path_make(key, PATH_SERVICE), now);
	path_pass(path_make(key, PATH_DESTINATION), now);
	return 0;
}

static __always_inline void path_fail(struct mark_path *path, __u64 since)
{
	if (path && path->passed <= since)
		path->passed = 0;
}

/* Marks have been lost since a time: what showed before that they arrive does so no more. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int path_fails(const struct mark_key *key, __u64 since)
{
	struct mark_path_key at;

	if (!key)
		return 0;
	path_fail(path_of(key, PATH_SERVICE, &at), since);
	path_fail(path_of(key, PATH_DESTINATION, &at), since);
	return 0;
}

/* A flow fell back. True: it is the one after which nothing is marked any more. */
static __always_inline bool path_strike(struct mark_path *path, __u64 now)
{
	bool was;

	if (!path || path_takes(path, now) || ++path->strikes < STRIKES_PATH)
		return false;
	path->strikes = STRIKES_PATH - 1; /* the next one, after that time, is enough */
	was = now < path->blocked;
	path->blocked = now + FALLBACK_NS;
	return !was;
}

#endif

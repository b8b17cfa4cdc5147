/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What flows learned of the path to a destination, for flows that begin later.
 *
 * Input: a destination, and what a flow learned. Output: what is known. Called by
 * guard.h when a flow begins or learns something, and by too_big.h.
 */
#ifndef WAYMARK_PDM_PATH_H
#define WAYMARK_PDM_PATH_H

/*
 * Written and read by the programs, for destinations of marked flows only. When
 * full, the least recently used leaves, and is learned again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct pdm_path_key);
	__type(value, struct pdm_path);
} pdm_paths SEC(".maps");

/* Every IPv6 link takes packets of this size (RFC 8200 section 5). */
#define IPV6_MTU_MIN 1280

/* What was learned of a path is forgotten after the time of a route exception. */
#define PATH_LIFETIME 600000000000ULL

/* A path that passed marked packets so recently is not taken to drop them. */
#define PATH_PASSED_LIFETIME 60000000000ULL

/* Whether something learned at a time, or never, is not older than its lifetime. */
static __always_inline bool is_recent(__u64 at, __u64 now, __u64 lifetime)
{
	return at && (__s64)(now - at) < (__s64)lifetime;
}

static __always_inline struct pdm_path *path_of(const struct pdm_key *key,
						struct pdm_path_key *path)
{
	__builtin_memcpy(path->remote, key->remote, sizeof(path->remote));
	path->netns = key->netns;
	path->zero = 0;
	return bpf_map_lookup_elem(&pdm_paths, path);
}

/* When a marked packet was last known to arrive, whatever its protocol. */
static __always_inline __u64 path_passed(const struct pdm_path *path)
{
	return path->acked > path->named ? path->acked : path->named;
}

/* A marked packet is known to have arrived; at: path->acked or path->named. */
static __always_inline void path_passes(struct pdm_path *path, __u64 *at, __u64 now)
{
	*at = now;
	path->quiet = 0;
	path->strikes = 0;
	path->tries = 0;
	path->backoff = 0;
}

/* Marks have been lost since a time: what showed before that they arrive does so no more. */
static __always_inline void path_fails(struct pdm_path *path, __u64 since)
{
	if (path->acked <= since)
		path->acked = 0;
	if (path->named <= since)
		path->named = 0;
}

/* The path to the destination of a flow, made where it is not known. */
static __noinline struct pdm_path *path_make(const struct pdm_key *key)
{
	struct pdm_path none = {};
	struct pdm_path_key at;
	struct pdm_path *path = path_of(key, &at);

	if (path)
		return path;
	bpf_map_update_elem(&pdm_paths, &at, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&pdm_paths, &at);
}

#endif

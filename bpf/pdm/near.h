/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where states are that are found without a call: in places. Those that were freed are taken first, and the
 * others in their order, so that few flows are in few pages.
 *
 * Input: the key of a flow. Output: its state, there or in the map of states, which takes three times as
 * long to look in. Called by state.h and by both stages.
 */
#ifndef WAYMARK_PDM_NEAR_H
#define WAYMARK_PDM_NEAR_H

/*
 * Places for states: pdm.state.max_entries where PDM is on. Written and read by the programs, read by the
 * agent, which frees those whose state is stale.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* so that places begin at cache lines */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pdm_near);
} pdm_near SEC(".maps");

/*
 * Of pdm_words, from WORD_INDEX on: by hash, the place of a flow, behind bits of its hash. A flow whose entry
 * is another's when it begins is in the map of states. Written by the programs; the agent clears the entry of a
 * place that it frees.
 */
#define INDEX_FREE 0ULL
#define INDEX_BUSY (~0ULL) /* its place is being taken */

/*
 * Behind the index: how often a place was freed, and the numbers of those that were freed last, as many as
 * there are places. The agent alone frees a place, after it has counted its state.
 */
#define WORD_FREED (WORD_INDEX + cfg_pdm_index)
#define WORD_NUMBERS (WORD_FREED + 1)

volatile struct pdm_shared pdm_shared SEC(".data.pdm");

static __always_inline __u64 *near_word(__u32 index)
{
	return bpf_map_lookup_elem(&pdm_words, &index);
}

#define NEAR_NONE (1U << NEAR_NUMBER_BITS)

/* Not keyed: whoever finds flows that meet there makes them as slow as without places. */
static __always_inline __u64 near_hash(const struct mark_key *key)
{
	const __u64 *word = (const void *)key;

	return mix(word[1] * 3 + word[3] + (word[2] ^ word[4]) * 5);
}

static __always_inline __u32 near_index(__u64 hash)
{
	return (hash >> 32) * cfg_pdm_index >> 32;
}

static __always_inline __u64 *near_entry(__u64 hash)
{
	return near_word(WORD_INDEX + near_index(hash));
}

static __always_inline struct pdm_near *near_at(__u64 entry)
{
	__u32 number = entry & ((1 << NEAR_NUMBER_BITS) - 1);

	return bpf_map_lookup_elem(&pdm_near, &number);
}

static __always_inline bool near_has(struct pdm_near *n, const struct mark_key *key)
{
	const __u64 *a = (const void *)&n->key, *b = (const void *)key;

	return WHOLE(n->owner) > NEAR_FREE &&
	       !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]));
}

/* The flow's place; NULL: it has none. */
static __always_inline struct pdm_near *near_of(const struct mark_key *key, __u64 hash, __u64 entry)
{
	struct pdm_near *n;

	if ((entry ^ hash) >> NEAR_NUMBER_BITS)
		return NULL;
	n = near_at(entry);
	return n && near_has(n, key) ? n : NULL;
}

/* The state of a flow, however old. far: it is in the map of states. */
static __always_inline struct pdm_state *pdm_find(const struct mark_key *key, bool *far)
{
	__u64 hash = near_hash(key), *entry = near_entry(hash);
	struct pdm_near *n = near_of(key, hash, entry ? WHOLE(*entry) : INDEX_FREE);

	*far = !n;
	return n ? &n->state : bpf_map_lookup_elem(&pdm_states, key);
}

/* The number of a place that is free; NEAR_NONE: there is none. */
static __always_inline __u32 near_take(void)
{
	__u64 reused = pdm_shared.reused, *freed = near_word(WORD_FREED), *number, fresh;
	__u32 places = cfg_pdm_index / NEAR_ENTRIES;

	if (!freed || !places)
		return NEAR_NONE;
	if (reused < WHOLE(*freed)) {
		number = near_word(WORD_NUMBERS + reused % places);
		if (number &&
		    __sync_val_compare_and_swap(&pdm_shared.reused, reused, reused + 1) == reused)
			return *number;
	}
	if (pdm_shared.fresh >= places)
		return NEAR_NONE;
	fresh = __sync_fetch_and_add(&pdm_shared.fresh, 1);
	return fresh < places ? fresh : NEAR_NONE;
}

/* The new state is the place's. False: another processor has it, or the agent. */
static __always_inline bool near_write(struct pdm_near *n, struct pdm_work *work, __s64 was)
{
	if (__sync_val_compare_and_swap(&n->owner, was, NEAR_BUSY) != was)
		return false;
	n->key = work->key;
	n->state = work->fresh;
	__sync_lock_test_and_set(&n->owner, work->fresh.id);
	work->totals.created++;
	return true;
}

/*
 * Gives the new state that is in the work of this processor a place. 1, or 0: the flow finds none. 1 where
 * another processor is about to make a state there, too. Not static: verified alone.
 */
__feature(FEATURE_PDM) __noinline int pdm_near_make(__u64 now)
{
	struct pdm_work *work = get_work();
	__u64 hash, *entry, was;
	struct pdm_near *n;
	__u32 number;
	__s64 owner;

	if (!work)
		return 0;
	hash = near_hash(&work->key);
	entry = near_entry(hash);
	if (!entry)
		return 0;
	was = WHOLE(*entry);
	n = was == INDEX_FREE ? NULL : near_of(&work->key, hash, was);
	if (n) {
		owner = WHOLE(n->owner);
		if (owner > NEAR_FREE && is_stale(&n->state, now) && near_write(n, work, owner))
			work->totals.renewed++;
		return 1;
	}
	if (was != INDEX_FREE)
		return was == INDEX_BUSY;
	if (__sync_val_compare_and_swap(entry, INDEX_FREE, INDEX_BUSY) != INDEX_FREE)
		return 1;
	number = near_take();
	n = number < NEAR_NONE ? near_at(number) : NULL;
	if (n)
		n->entry = near_index(hash);
	if (!n || !near_write(n, work, NEAR_FREE)) {
		WHOLE(*entry) = INDEX_FREE;
		return 0;
	}
	__sync_lock_test_and_set(entry, hash >> NEAR_NUMBER_BITS << NEAR_NUMBER_BITS | number);
	return 1;
}

#endif

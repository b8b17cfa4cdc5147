/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How states are made, and how many.
 *
 * Input: the key of a flow, in the work of this processor. Output: its state, new. A
 * state is made for a packet that is to be marked, never for one that was
 * received (RFC 8250 section 3.5.1). Called by the marking stage.
 */
#ifndef WAYMARK_PDM_CREATE_H
#define WAYMARK_PDM_CREATE_H

/*
 * States that may be made until the next drain, which writes it: those that live
 * keep their place, whatever new flows there are.
 */
volatile struct {
	__s64 all;
	__s64 far; /* of those that find no place: the map of states takes no more */
} pdm_vacant SEC(".data.vacant");

/*
 * New states that a second may bring: as configured, or a part of the vacant ones,
 * so that a flood leaves places for other new flows, however long states live.
 */
static __always_inline __u32 new_per_second(void)
{
	__s64 vacant = pdm_vacant.all;

	return cfg_pdm_new_per_second ?: vacant > 0 ? vacant / 16 + 1 : 0;
}

/*
 * Takes one of the new states that this second allows, for all processors together. Refused packets only read
 * how many there were, so that in a flood the processors don't fight for its cache line.
 */
static __always_inline bool take_second(__u64 now)
{
	__u64 second = now / 1000000000, was = pdm_shared.budget, fresh = second << 32 | 1;
	__u32 limit = new_per_second();

	if (was >> 32 != (__u32)second &&
	    __sync_val_compare_and_swap(&pdm_shared.budget, was, fresh) == was)
		return true;
	if ((__u32)pdm_shared.budget >= limit)
		return false;
	was = __sync_fetch_and_add(&pdm_shared.budget, 1);
	return (__u32)was < limit;
}

static __always_inline bool take_budget(__u64 now)
{
	if (pdm_vacant.all <= 0 || !take_second(now))
		return false;
	return __sync_fetch_and_add(&pdm_vacant.all, -1) > 0;
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
	bool far;

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
	if (!pdm_near_make(now)) {
		if (__sync_fetch_and_add(&pdm_vacant.far, -1) <= 0) {
			stats->refused++;
			*why = MARK_NEW_REFUSED;
			return NULL;
		}
		if (!bpf_map_update_elem(&pdm_states, &work->key, fresh, BPF_NOEXIST))
			stats->created++;
	}
	return pdm_find(&work->key, &far);
}

#endif

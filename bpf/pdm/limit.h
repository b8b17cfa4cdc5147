/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How many packets of a flow are marked in a second.
 *
 * Input: a packet that would be marked, and its flow's state. Output: whether the
 * flow has had the marks that a second allows. Called by mark.h.
 *
 * Half of the marks are there when the second begins, for flows that send in
 * bursts. Three eighths follow as it passes, so that bulk data is marked at even
 * distances. The rest is for the first packets of answers, which carry the delay
 * of the server.
 */
#ifndef WAYMARK_PDM_LIMIT_H
#define WAYMARK_PDM_LIMIT_H

#define LIMIT_NS 1000000000ULL

/* Marks that a packet may be the next of, so long after the second began. */
static __always_inline __u32 limit_now(__u64 elapsed, bool answers)
{
	__u64 limit = cfg_pdm_marks_per_second, now;

	if (answers)
		return limit;
	/* 2^20 ns are about a thousandth of a second. */
	now = limit - limit / 2 + ((limit * 3 * (elapsed >> 20)) >> 13);
	return now < limit ? now : limit;
}

/*
 * What is not marked must not spoil the delays of what is: a request that ends
 * unmarked is not one to measure, and an answer that begins unmarked goes on so.
 */
static __always_inline bool is_limited(struct pdm_state *s, const struct packet *p, __u64 now)
{
	__u64 elapsed;
	bool data;

	if (!cfg_pdm_marks_per_second)
		return false;
	data = !is_bare(p);
	elapsed = now - s->second;
	if (elapsed >= LIMIT_NS) {
		s->second = now;
		s->second_marks = 0;
		elapsed = 0;
	}
	if (!(data && WHOLE(s->heard) == HEARD_SKIPPED) &&
	    s->second_marks < limit_now(elapsed, data && WHOLE(s->heard) == HEARD_DATA))
		return false;
	if (!data)
		return true;
	WHOLE(s->request) = 0;
	if (WHOLE(s->heard) == HEARD_DATA)
		WHOLE(s->heard) = HEARD_SKIPPED;
	s->guard.flags |= GUARD_LIMITED;
	return true;
}

/* A packet leaves with a mark. */
static __always_inline void limit_count(struct pdm_state *s, const struct packet *p)
{
	if (!cfg_pdm_marks_per_second)
		return;
	s->second_marks++;
	if (!is_bare(p))
		WHOLE(s->heard) = HEARD_NOTHING;
}

#endif

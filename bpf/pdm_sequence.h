/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Follows the numbers of a peer: lost, reordered and duplicate packets.
 *
 * In: the number of a received packet. Out: how it follows those before it,
 * counted in the flow's state. Called by the reading stage, under the state's
 * lock. The same steps as inband.Sequence.
 */
#ifndef WAYMARK_PDM_SEQUENCE_H
#define WAYMARK_PDM_SEQUENCE_H

#define SEQUENCE_WINDOW 64 /* numbers remembered: the bits of a word */
#define SEQUENCE_GAP_MAX 1024 /* more are a restart rather than loss */

static __always_inline void sequence_begin(struct pdm_state *s, __u16 psn, __u32 word)
{
	s->highest = psn;
	s->first_word = word;
	s->seen = 1;
	s->span = 1;
	s->suspect = 0;
}

static __always_inline void sequence_advance(struct pdm_state *s, __u16 psn, __u32 word, __u16 d)
{
	s->highest = psn;
	s->first_word = word;
	s->suspect = 0;
	if (d >= SEQUENCE_WINDOW) {
		s->seen = 1;
		s->span = SEQUENCE_WINDOW;
		return;
	}
	s->seen = s->seen << (d & 63) | 1;
	s->span = s->span + d < SEQUENCE_WINDOW ? s->span + d : SEQUENCE_WINDOW;
}

static __always_inline enum pdm_arrival sequence_restart(struct pdm_state *s, __u16 psn, __u32 word)
{
	sequence_begin(s, psn, word);
	s->restarts++;
	return ARRIVAL_RESTART;
}

/* A number d, fewer than the window, before the highest. */
static __always_inline enum pdm_arrival sequence_behind(struct pdm_state *s, __u8 d)
{
	__u64 bit = 1ULL << (d & 63);

	if (s->seen & bit) {
		if (s->copies) { /* of a sender that marks bursts: a segment that was overtaken */
			s->copies++;
			return ARRIVAL_COPY;
		}
		s->duplicates++;
		return ARRIVAL_DUPLICATE;
	}
	s->seen |= bit;
	s->reordered++;
	if (d < s->span) {
		s->lost--;
	} else {
		/* Before the first: now those between are missing. */
		s->lost += d - s->span;
		s->span = d + 1;
	}
	return ARRIVAL_REORDERED;
}

/*
 * word tells segments of one GSO burst from duplicates: octets 4 to 7 of the
 * transport header. fresh: the peer says that it had sent nothing before.
 */
static __always_inline enum pdm_arrival sequence_observe(struct pdm_state *s, __u16 psn, __u32 word,
							 bool fresh)
{
	__s16 d = psn - s->highest;

	s->received++;
	if (!s->span) {
		sequence_begin(s, psn, word);
		return ARRIVAL_FIRST;
	}
	if (d == 1) {
		sequence_advance(s, psn, word, 1);
		return ARRIVAL_IN_ORDER;
	}
	if (d == 0) {
		if (word != s->first_word) {
			s->copies++;
			return ARRIVAL_COPY;
		}
		s->duplicates++;
		return ARRIVAL_DUPLICATE;
	}
	if (d < 0 && d > -SEQUENCE_WINDOW)
		return sequence_behind(s, -d);
	if (fresh)
		return sequence_restart(s, psn, word);
	if (d > 0 && d <= SEQUENCE_GAP_MAX) {
		s->lost += d - 1;
		sequence_advance(s, psn, word, d);
		return ARRIVAL_GAP;
	}
	if (d < 0 && d >= -SEQUENCE_GAP_MAX) {
		s->late++;
		return ARRIVAL_LATE;
	}
	if (s->suspect && psn == s->wild_next)
		return sequence_restart(s, psn, word);
	/* Two in a row make a restart; one alone may be anybody's. */
	s->wild++;
	s->suspect = 1;
	s->wild_next = psn + 1;
	return ARRIVAL_WILD;
}

#endif

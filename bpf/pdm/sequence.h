/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Follows the sequence numbers of a peer: lost, reordered and duplicate packets.
 *
 * Input: the numbers in a received packet. Output: how the packet follows those
 * before it, counted in the flow's state. Called by the reading stage, under the
 * state's lock. The same steps as inband.Sequence.
 *
 * Anybody who knows the 5-tuple can send a packet, but only somebody who sees the
 * flow knows its numbers. So a packet is believed when it continues the peer's
 * numbers and names a packet that this host sent and the peer has not named
 * before, or did recently: that is a proof. A packet that is not believed changes
 * nothing but the candidate for a new sequence, which replaces the old one after
 * several proofs with no other packet between them.
 */
#ifndef WAYMARK_PDM_SEQUENCE_H
#define WAYMARK_PDM_SEQUENCE_H

#include "window.h"

#define SEQUENCE_AHEAD 64 /* one packet alone moves the flow on by no more */
#define SEQUENCE_GAP_MAX 1024 /* more are a restart rather than loss */
#define SEQUENCE_PROOFS 4 /* that establish a sequence */
#define SEQUENCE_PATIENCE 10000000000ULL /* ns; without proofs, a restart takes as long */
#define ECHO_SLACK 32 /* the peer's packets may be reordered, and what they name */
#define ECHO_FIRST 1024 /* that may be on their way when the first answer comes */

static __always_inline bool has_received(const struct pdm_option *o)
{
	return o->psnlr || o->dtlr.delta || o->dtlr.scale;
}

/*
 * Which of this host's packets the option names as received, 1 being the first;
 * 0 where it names none, or one that it can't.
 */
static __always_inline __u32 packet_named(const struct pdm_state *s, const struct pdm_option *o)
{
	__u32 next = WHOLE(s->psn), sent = next - s->psn_first;
	__u32 behind = (__u16)(next - 1 - o->psnlr);
	__u32 reach = s->rounds ? sent - s->echoed + ECHO_SLACK : ECHO_FIRST;

	if (!has_received(o) || behind >= sent || behind >= reach)
		return 0;
	return sent - behind;
}

/* Notes what a believed packet names. */
static __always_inline void sequence_prove(struct pdm_state *s, __u32 named)
{
	if (!named)
		return;
	if (!s->rounds || (__s32)(named - s->echoed) > 0)
		s->echoed = named;
	if (s->rounds == SEQUENCE_PROOFS)
		return;
	/* A proof names a packet that was not sent yet when the proof before came. */
	if (s->rounds && (__s32)(named - s->proof_sent) <= 0)
		return;
	s->proof_sent = s->psn - s->psn_first;
	s->rounds++;
	if (s->rounds == SEQUENCE_PROOFS)
		s->contested = 0;
}

static __always_inline void sequence_begin(struct pdm_state *s, __u16 psn, __u32 word)
{
	s->highest = psn;
	s->first_word = word;
	s->seen = 1;
	s->span = 1;
	s->burst = 0;
	s->rounds = 0;
	s->wild_count = 0;
}

/* Whoever sent nothing for a lifetime has forgotten the flow, and so it is here. */
static __always_inline void sequence_forget(struct pdm_state *s)
{
	s->span = 0;
	s->contested = 0;
}

static __always_inline void sequence_advance(struct pdm_state *s, __u16 psn, __u32 word, __u16 d)
{
	s->highest = psn;
	s->first_word = word;
	s->burst = s->burst > d ? s->burst - d : 0;
	window_advance(&s->seen, &s->span, d);
}

/* A number d, fewer than the window, before the highest. */
static __always_inline enum pdm_arrival sequence_behind(struct pdm_state *s, __u8 d)
{
	__s32 missing;

	if (window_has(s->seen, d)) {
		if (s->burst) { /* of a sender that marks bursts: a segment that was overtaken */
			s->copies++;
			return ARRIVAL_COPY;
		}
		s->duplicates++;
		return ARRIVAL_DUPLICATE;
	}
	s->reordered++;
	missing = window_late(&s->seen, &s->span, d);
	s->lost = missing < 0 ? s->lost - (s->lost > 0) : s->lost + missing;
	return ARRIVAL_REORDERED;
}

/*
 * A believed packet. word distinguishes segments of one GSO burst from duplicates: bytes 4
 * to 7 of the transport header.
 */
static __always_inline enum pdm_arrival sequence_near(struct pdm_state *s, __u16 psn, __u32 word,
						      __s16 d)
{
	s->received++;
	s->wild_count = 0;
	if (d == 1) {
		sequence_advance(s, psn, word, 1);
		return ARRIVAL_IN_ORDER;
	}
	if (d == 0) {
		if (word != s->first_word) {
			s->copies++;
			s->burst = SEQUENCE_WINDOW;
			return ARRIVAL_COPY;
		}
		s->duplicates++;
		return ARRIVAL_DUPLICATE;
	}
	if (d < 0)
		return sequence_behind(s, -d);
	s->lost += d - 1;
	sequence_advance(s, psn, word, d);
	return ARRIVAL_GAP;
}

static __always_inline void wild_begin(struct pdm_state *s, __u16 psn, __u32 named, __u64 now)
{
	s->wild_count = 1;
	s->wild_lost = 0;
	s->wild_seen = 1;
	s->wild_first = psn;
	s->wild_next = psn + 1;
	s->wild_rounds = named != 0;
	s->wild_sent = s->psn - s->psn_first;
	s->wild_since = now;
}

/* The candidate's next packet, c numbers beyond the one that would follow. */
static __always_inline void wild_advance(struct pdm_state *s, __u16 psn, __u32 named, __u16 c)
{
	s->wild_count++;
	s->wild_lost += c;
	s->wild_seen = c + 1 < SEQUENCE_WINDOW ? s->wild_seen << ((c + 1) & 63) | 1 : 1;
	s->wild_next = psn + 1;
	if (s->wild_rounds < SEQUENCE_PROOFS && named && (__s32)(named - s->wild_sent) > 0) {
		s->wild_rounds++;
		s->wild_sent = s->psn - s->psn_first;
	}
}

/* One of the candidate's numbers, the i-th before its newest: overtaken, or again. */
static __always_inline void wild_behind(struct pdm_state *s, __u8 i)
{
	__u64 bit = 1ULL << (i & 63);

	if (s->wild_seen & bit || i > (__u16)(s->wild_next - 1 - s->wild_first))
		return;
	s->wild_seen |= bit;
	s->wild_count++;
	s->wild_lost -= s->wild_lost > 0;
}

/* Numbers that are missing before the candidate, if it is the old sequence after loss. */
static __always_inline __u16 wild_gap(const struct pdm_state *s)
{
	__u16 d = s->wild_first - s->highest;

	return d > SEQUENCE_AHEAD && d <= SEQUENCE_GAP_MAX ? d - 1 : 0;
}

/*
 * Whether the candidate is the peer. Without proofs, as when this host sends
 * nothing, time stands for them: who guesses what a candidate needs has one guess
 * in that time, since a wrong one ends it.
 */
static __always_inline bool wild_proven(const struct pdm_state *s, __u64 now)
{
	__u64 wait = SEQUENCE_PATIENCE, silent;

	if (s->wild_rounds == SEQUENCE_PROOFS)
		return true;
	if (s->wild_count < SEQUENCE_PROOFS)
		return false;
	if (!s->rounds) /* nor has what it replaces */
		return true;
	if (wild_gap(s)) {
		/* Loss lasts some time: so long must what follows be there. */
		silent = since(s->wild_since, s->rx);
		if (silent < wait)
			wait = silent;
	}
	return now >= s->wild_since && now - s->wild_since >= wait;
}

static __always_inline enum pdm_arrival wild_accept(struct pdm_state *s, __u16 psn, __u32 word,
						    __u32 named)
{
	__u32 gap = wild_gap(s), count = s->wild_count;
	__u16 span = psn - s->wild_first;
	__u64 seen = s->wild_seen;

	s->received += count;
	s->lost += s->wild_lost + gap;
	if (gap) {
		sequence_advance(s, psn, word, SEQUENCE_WINDOW);
		sequence_prove(s, named);
		s->wild_count = 0;
	} else {
		sequence_begin(s, psn, word);
		s->span = span < SEQUENCE_WINDOW ? span + 1 : SEQUENCE_WINDOW;
		s->contested = 0;
		s->restarts++;
		s->rounds = s->wild_rounds;
		s->echoed = named;
		s->proof_sent = s->wild_sent;
	}
	s->seen = seen;
	return gap ? ARRIVAL_GAP : ARRIVAL_RESTART;
}

/* A packet that is not believed: perhaps of the candidate, which may be proven by it. */
static __always_inline enum pdm_arrival sequence_suspect(struct pdm_state *s, __u16 psn, __u32 word,
							 __u32 named, __u64 now)
{
	__s16 d = psn - s->highest, c = psn - s->wild_next;
	enum pdm_arrival arrival = ARRIVAL_WILD;
	bool near = s->wild_count && c >= -SEQUENCE_WINDOW && c < SEQUENCE_AHEAD;

	if (s->rounds && !named) {
		/* A wrong guess ends the candidate that it is for; others are not about it. */
		if (near)
			s->wild_count = 0;
	} else if (!near) {
		wild_begin(s, psn, named, now);
	} else if (c < 0) {
		wild_behind(s, -c - 1);
	} else {
		wild_advance(s, psn, named, c);
		if (wild_proven(s, now))
			return wild_accept(s, psn, word, named);
	}
	if (d < 0 && d >= -SEQUENCE_GAP_MAX)
		arrival = ARRIVAL_LATE;
	if (arrival == ARRIVAL_LATE)
		s->late++;
	else
		s->wild++;
	return arrival;
}

static __always_inline enum pdm_arrival sequence_observe(struct pdm_state *s,
							 const struct pdm_sample *sample, __u64 now)
{
	__u16 psn = sample->option.psntp;
	__u32 named = sample->named;
	__s16 d = psn - s->highest;

	if (!s->span) {
		sequence_begin(s, psn, sample->word);
		sequence_prove(s, named);
		s->received++;
		return ARRIVAL_FIRST;
	}
	if (d > -SEQUENCE_WINDOW && d <= SEQUENCE_AHEAD) {
		/* What the peer sent before it had received anything may be overtaken. */
		if (named || !s->rounds ||
		    (d < 0 && s->rounds < SEQUENCE_PROOFS && !has_received(&sample->option))) {
			sequence_prove(s, named);
			return sequence_near(s, psn, sample->word, d);
		}
	} else if (named && s->rounds < SEQUENCE_PROOFS && !(d > 0 && d <= SEQUENCE_GAP_MAX)) {
		/* Neither is established. Where both have proofs, neither is measured. */
		if (s->rounds)
			s->contested = 1;
		sequence_begin(s, psn, sample->word);
		sequence_prove(s, named);
		s->received++;
		s->restarts++;
		return ARRIVAL_RESTART;
	}
	return sequence_suspect(s, psn, sample->word, named, now);
}

#endif

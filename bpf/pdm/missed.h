/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets that came while another processor held the flow's state for too long:
 * their delays are missed, but they are not lost.
 *
 * Input: such a packet, without the lock; then the next packet that has the lock.
 * Output: the numbers of the former are no longer missing. Called by the reading
 * stage.
 */
#ifndef WAYMARK_PDM_MISSED_H
#define WAYMARK_PDM_MISSED_H

#define MISSED_NEAR 32 /* half of the bits: numbers before and after the highest */

/* Bit i of the result stands for the number highest - i. */
static __always_inline __u64 missed_turn(__u64 bits, __u16 highest)
{
	return bits << (highest & 63) | bits >> (-highest & 63);
}

static __always_inline __u64 missed_turn_back(__u64 bits, __u16 highest)
{
	return bits >> (highest & 63) | bits << (-highest & 63);
}

/* Notes a packet that would be believed. What is read may change meanwhile. */
static __always_inline void note_missed(struct pdm_state *s, const struct pdm_option *o)
{
	__s16 d = o->psntp - WHOLE(s->highest);

	if (s->rounds && !packet_named(s, o))
		return;
	if (d > -MISSED_NEAR && d <= MISSED_NEAR)
		__sync_fetch_and_or(&s->missed, 1ULL << (-o->psntp & 63));
	else if (d > 0 && d <= SEQUENCE_GAP_MAX)
		__sync_fetch_and_add(&s->missed_far, 1);
}

/* Takes back losses that were none. The flow has just moved on by d numbers. */
static __noinline int take_missed(struct pdm_state *s, __u16 d)
{
	__u64 bits = WHOLE(s->missed), came, far;
	__u32 arrived;
	__u16 highest = s->highest;

	came = missed_turn(bits, highest);
	if (d <= MISSED_NEAR)
		came &= (1ULL << MISSED_NEAR) - 1; /* the others are still ahead */
	__sync_fetch_and_and(&s->missed, ~missed_turn_back(came, highest));
	came &= ~s->seen;
	if (s->span < SEQUENCE_WINDOW)
		came &= (1ULL << (s->span & 63)) - 1;
	s->seen |= came;
	arrived = __builtin_popcountll(came);
	s->lost -= arrived < s->lost ? arrived : s->lost;
	s->received += arrived;
	if (d > MISSED_NEAR) {
		far = __sync_lock_test_and_set(&s->missed_far, 0);
		if (far >= d)
			far = d - 1;
		if (far > s->lost)
			far = s->lost;
		s->lost -= far;
		s->received += far;
	}
	return 0;
}

#endif

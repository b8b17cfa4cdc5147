/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Receive times of a network card on the kernel's clock.
 *
 * Input: what is known of the card's clock, and a packet's time by it. Output: the same time by
 * CLOCK_MONOTONIC.
 */
#ifndef WAYMARK_HINTS_CLOCK_H
#define WAYMARK_HINTS_CLOCK_H

#include "hints/abi.h"

/* Clocks that run apart by 50 ppm differ by 10 µs more after two of them. */
#define HINTS_CLOCK_WINDOW (100 * 1000 * 1000ULL)
/* Between card and program; beyond, the clock was set. */
#define HINTS_CLOCK_LATE (10 * 1000 * 1000LL)

/*
 * The packet that took the least time from the card to here shows how far the clocks are apart; all others are as
 * much earlier than now as they took longer. So it does not matter what the card's clock shows, and no time is
 * later than the kernel's own.
 */
static __always_inline __u64 hints_host_time(struct hints_clock *c, __u64 now, __u64 at)
{
	__s64 behind = now - at, late;

	if (now - c->window > HINTS_CLOCK_WINDOW) {
		c->last = now - c->window > 2 * HINTS_CLOCK_WINDOW ? behind : c->best;
		c->best = behind;
		c->window = now;
	} else if (behind < c->best) {
		c->best = behind;
	}
	late = behind - (c->best < c->last ? c->best : c->last);
	if (late >= HINTS_CLOCK_LATE)
		c->best = c->last = behind;
	else if (late > 0)
		return now - late;
	return now;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The clock of PDM in tests: it stands until it is set. In place of mark/clock.h. */
#ifndef WAYMARK_TEST_PDM_CLOCK_H
#define WAYMARK_TEST_PDM_CLOCK_H

volatile __u64 test_now SEC(".data.test");

static __always_inline __u64 mark_now(void)
{
	return test_now;
}

#endif

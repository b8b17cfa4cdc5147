/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The clock of stages that insert or read marks. Called once for each packet that is
 * marked or read, by each stage; tests put their own in its place.
 */
#ifndef WAYMARK_MARK_CLOCK_H
#define WAYMARK_MARK_CLOCK_H

static __always_inline __u64 mark_now(void)
{
	return bpf_ktime_get_ns();
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The clock of PDM. Called once for each packet that is marked or read, by both
 * stages; tests put their own in its place.
 */
#ifndef WAYMARK_PDM_CLOCK_H
#define WAYMARK_PDM_CLOCK_H

static __always_inline __u64 pdm_now(void)
{
	return bpf_ktime_get_ns();
}

#endif

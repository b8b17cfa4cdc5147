/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Dry runs: what would become of a frame that user space has made up, and has the program try (BPF_PROG_TEST_RUN).
 *
 * Input: a frame with a note in front, which has a key that only the agent knows. Frames of drivers have nothing in front of them
 * yet; those that another program sent on may have. Output: the note says what would become of it, and the frame is as it would
 * leave. Nothing is counted, remembered or sent; the verdict is to drop it, so that not even a stolen key lets a packet pass the
 * rules. Called by xdp.bpf.c, before all stages.
 */
#ifndef WAYMARK_DRY_H
#define WAYMARK_DRY_H

/* Not 0: the frame was one. Verified alone: frames without anything in front of them do not get here. */
__feature(FEATURE_BALANCE | FEATURE_FORWARD) __noinline int dry_run(frame_ctx *xdp)
{
	int verdict = XDP_PASS;

	if (!frame_dry_note(xdp))
		return 0;
	if (cfg_features & FEATURE_BALANCE)
		verdict = balance(xdp, RUN_DRY);
	if (cfg_features & FEATURE_FORWARD && verdict == XDP_PASS)
		forward(xdp, RUN_DRY);
	return 1;
}

#endif

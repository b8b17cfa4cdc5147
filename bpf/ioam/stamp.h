/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the programs that a packet passes tell each other about it.
 *
 * XDP leaves struct hints_meta in front of the frame for tc ingress (hints/meta.h). Tc ingress sets the
 * packet's delivery time to the time of its receipt, which the kernel keeps until tc egress only
 * where it forwards a packet, and which nobody can send along; a delivery time of a sender on the same machine is cleared.
 */
#ifndef WAYMARK_IOAM_STAMP_H
#define WAYMARK_IOAM_STAMP_H

#include "hints/meta.h"

/* Node data were added; no field asked for the time. A clock never shows it. */
#define IOAM_STAMP_NO_TIME 1
/* At tc ingress, as HINTS_OWN_DROP and HINTS_OWN_SETTLED. */
#define IOAM_STAMP_DROP (1ULL << 63)
#define IOAM_STAMP_SETTLED (1ULL << 62)

/* Who leaves something, and for which interface: other agents, and other interfaces that the packet passes, have others. */
static __always_inline __u32 ioam_owner(frame_ctx *ctx)
{
	return cfg_ioam_cookie ^ iface_of(ctx);
}

static __always_inline __u64 ioam_stamp_of(const struct ioam_work *w)
{
	if (!w->written)
		return 0;
	return w->received ? w->received : IOAM_STAMP_NO_TIME;
}

/* Transit delay as node data have it, of a packet received at a time. */
static __always_inline __u32 ioam_delay(__u64 received)
{
	__u64 now;

	if (received <= IOAM_STAMP_NO_TIME)
		return IOAM_UNKNOWN;
	now = bpf_ktime_get_ns();
	if (now < received)
		return IOAM_UNKNOWN;
	return now - received > IOAM_DELAY_MAX ? IOAM_DELAY_OVERFLOW : now - received;
}

#endif

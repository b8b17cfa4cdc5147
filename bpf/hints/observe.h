/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hints in the program of the agent, in copies that are bound to a device.
 *
 * Input: a frame. Output: counts; for stages the receive time, by the clock of the device.
 */
#ifndef WAYMARK_HINTS_OBSERVE_H
#define WAYMARK_HINTS_OBSERVE_H

/* All hints of all packets are counted, not only those that a stage reads. */
const volatile bool hints_observed = false;

/* Not inlined, as hints_nic_time(): the stack of a program that calls all stages is small. */
__feature(FEATURE_HINTS) __noinline int hints_observe_all(struct xdp_md *xdp)
{
	struct hints h = {};

	if (!hints_driver_time(xdp, &h.time))
		h.source[HINT_TIME] = hints_source();
	if (!hints_driver_hash(xdp, &h))
		h.source[HINT_HASH] = hints_source();
	if (!hints_driver_vlan(xdp, &h))
		h.source[HINT_VLAN] = hints_source();
	hints_count(&h, HINTS_ALL);
	return 0;
}

static __always_inline void hints_observe(struct xdp_md *xdp)
{
	if (cfg_features & FEATURE_HINTS && hints_observed)
		hints_observe_all(xdp);
}

/* The tag that the driver took out of the frame: 1, its protocol, and 16 bits of the rest; 0: none. Not inlined, likewise. */
__feature(FEATURE_HINTS) __noinline __u64 hints_taken_tag(struct xdp_md *xdp)
{
	struct hints h = {};

	if (hints_driver_vlan(xdp, &h))
		return 0;
	return 1ULL << 32 | (__u32)h.vlan_proto << 16 | h.vlan_tci;
}

static __always_inline bool frame_hint(struct xdp_md *xdp, __be16 *proto, __u32 *tci)
{
	__u64 tag = cfg_features & FEATURE_HINTS ? hints_taken_tag(xdp) : 0;

	*proto = tag >> 16;
	*tci = (__u16)tag;
	return tag;
}

/* As frame_hint_tag() at tc. */
static __always_inline bool frame_hint_tag(struct xdp_md *xdp, __u32 *tci)
{
	__be16 proto;

	return frame_hint(xdp, &proto, tci);
}

__feature(FEATURE_HINTS) __noinline __u64 hints_nic_time(struct xdp_md *xdp)
{
	struct hints h = {};

	if (hints_driver_time(xdp, &h.time))
		h.time = 0;
	else
		h.source[HINT_TIME] = hints_source();
	if (!hints_observed)
		hints_count(&h, HINTS_TIME);
	return h.time;
}

/* As frame_nic_time() at tc. */
static __always_inline __u64 frame_nic_time(struct xdp_md *xdp)
{
	return cfg_features & FEATURE_HINTS ? hints_nic_time(xdp) : 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hints passed on: what the program at XDP leaves in front of a frame, in the metadata area.
 *
 * Input: the bytes in front of a frame. Output: struct hints_meta. For programs at tc, where it begins at
 * skb->data_meta, and for AF_XDP sockets, which find it right before the frame in their memory.
 * It needs linux/types.h and stdbool.h before it; user space may include it.
 *
 * A change of the layout has another version. It takes 32 bytes, as Linux 6.7 and older have no more.
 */
#ifndef WAYMARK_HINTS_META_H
#define WAYMARK_HINTS_META_H

#include "hints/abi.h"

struct hints_meta {
	/* Of receipt, ns of CLOCK_MONOTONIC, whatever the source: times of a network card are converted. */
	__u64 time;
	__u32 hash; /* 0 may be a hash */
	__be16 vlan_proto; /* of the outer tag, in the frame or not */
	__u16 vlan_tci;
	__u8 source[HINTS]; /* enum hint_source; HINT_ABSENT: the value means nothing */
	bool hash_l4; /* ports are in it: packets of a flow have one hash */
	__u8 verdict; /* enum hints_verdict */
	__u8 own; /* the rest is for programs of Waymark: what is done */
	__u16 zero;
	__u32 owner; /* which agent wrote it, and for which interface */
	__u32 version; /* HINTS_META_1 */
};

_Static_assert(sizeof(struct hints_meta) == 32, "what all kernels have");

/*
 * The metadata between two addresses: at tc skb->data_meta and skb->data, in AF_XDP 32 bytes before the
 * frame and the frame. NULL: there are none of this version. AF_XDP gives memory back as it is: set
 * version to 0 before that, or a later frame without metadata seems to have those of an earlier one.
 */
__attribute__((always_inline)) static inline const struct hints_meta *
hints_meta_at(const void *from, const void *to)
{
	const struct hints_meta *m = (const struct hints_meta *)from;

	if ((const void *)(m + 1) > to || m->version != HINTS_META_1)
		return (const struct hints_meta *)0;
	return m;
}

#endif

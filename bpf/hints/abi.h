/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What programs that read hints share with user space. */
#ifndef WAYMARK_HINTS_ABI_H
#define WAYMARK_HINTS_ABI_H

/* What the driver may know of a packet. */
enum hint {
	HINT_TIME = 0, /* of receipt */
	HINT_HASH = 1,
	HINT_VLAN = 2, /* a tag that is not in the frame any more */
	HINTS = 3,
};

/* Where a value comes from. */
enum hint_source {
	HINT_ABSENT = 0, /* there is none: a packet without tag; or nobody asked for it */
	HINT_HARDWARE = 1, /* the network card */
	HINT_DRIVER = 2, /* software: the driver of a virtual interface */
	HINT_COMPUTED = 3, /* this program: the clock of the host, the bytes of the frame */
};

/* What is in front of a frame: struct hints_meta of meta.h. */
enum hints_version { HINTS_META_1 = 0x31484d57 };

/* Of the packet rules at XDP. What they drop is not passed on. */
enum hints_verdict {
	HINTS_UNDECIDED = 0, /* it met no rules there */
	HINTS_PASSED = 1,
	HINTS_TAPPED = 2, /* they let it pass, and a tap rule selected it */
};

/* struct hints_meta.own: of programs of Waymark. */
enum hints_own {
	HINTS_OWN_IOAM = 1 << 0, /* XDP has done what a node of IOAM does */
	HINTS_OWN_WRITTEN = 1 << 1, /* node data were added */
	HINTS_OWN_SETTLED = 1 << 2, /* tc has nothing to remove or to read */
	HINTS_OWN_DROP = 1 << 3, /* tc drops the packet: it is in the flows */
};

enum hints_size {
	HINTS_TAKERS = 64, /* interfaces on which hints are passed on */
	HINTS_QUEUES = 64, /* of such an interface, with sockets of AF_XDP */
};

/* How far the clock of a network card is behind that of the kernel: least differences in which packets were seen, ns. */
struct hints_clock {
	__u64 window; /* when the running one began */
	__s64 best; /* in it */
	__s64 last; /* in the one before */
};

/* An interface on which hints are passed on. */
struct hints_taker {
	struct hints_clock clock;
	__u64 refused; /* frames without space in front of them */
	__u32 first; /* element of xsks_map: its queue 0 */
	__u32 tapped; /* sockets get what tap rules select, and nothing else */
};

/*
 * How much a socket of AF_XDP takes: what finds no space there, the kernel would drop. Buffers that went to it, less
 * those that it gave back, are at most the limit. Written by who receives, except the first three; limit 0: it does not say.
 */
struct hints_queue {
	__u64 sent; /* buffers */
	__u64 full; /* frames for which there was no space; the stack has them */
	__u64 too_long; /* likewise: they would take more buffers than there may be of a frame */
	__u32 limit;
	__u32 room; /* bytes of a frame in a buffer */
	__u32 most; /* buffers of a frame */
	__u32 zero;
	__u64 returned; /* buffers that were given back */
	__u64 spare[2];
};

_Static_assert(sizeof(struct hints_queue) == 64, "a cache line");

/* Packets of a device by what their hints were when they were asked for. */
struct hints_count {
	__u64 present[HINTS];
	__u64 absent[HINTS];
};

#endif

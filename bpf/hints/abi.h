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

/* Packets of a device by what their hints were when they were asked for. */
struct hints_count {
	__u64 present[HINTS];
	__u64 absent[HINTS];
};

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The header of GUE version 0, without options. Included by wrap.h, unwrap.h and check.bpf.c. */
#ifndef WAYMARK_BALANCE_GUE_H
#define WAYMARK_BALANCE_GUE_H

struct gue_header {
	__u8 form; /* version, control flag, length of what follows */
	__u8 proto;
	__be16 flags;
};

#define BALANCE_GUE_BYTES (sizeof(struct udphdr) + sizeof(struct gue_header))

#endif

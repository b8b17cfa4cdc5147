/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What user space and the program at XDP share of dry runs. */
#ifndef WAYMARK_DRY_ABI_H
#define WAYMARK_DRY_ABI_H

/* Arguments of stages that end the way of a packet. */
enum run_flag {
	RUN_UNRECORDED = 1 << 0, /* rules say that there is no record of the packet */
	RUN_DRY = 1 << 1, /* nothing is counted, remembered or sent */
};

enum dry_flag {
	DRY_REFRESH =
		1
		<< 7, /* of dry_note.forward: the next packet to the neighbour is left to the kernel */
};

/* How a backend was chosen. */
enum dry_choice {
	DRY_CHOICE_RING = 0, /* by the Maglev table */
	DRY_CHOICE_KNOWN, /* the connection is known */
	DRY_CHOICE_QUIC, /* by the connection ID */
};

/*
 * The metadata of a frame in a dry run. All of it but the key is an answer. 32 bytes are what any kernel takes.
 */
struct dry_note {
	__u64 key;
	__u8 balance; /* 1 + enum balance_result; 0: the interface has no part in balancing */
	__u8 forward; /* 1 + enum forward_result, and enum dry_flag; 0: none in forwarding */
	__u16 mtu;
	__u32 out; /* index of the interface where it leaves */
	__u8 next_hop[16]; /* IPv4 as ::ffff:a.b.c.d; of balancing: struct dry_backend */
};

struct dry_backend {
	__u16 service; /* its number */
	__u16 backend; /* likewise */
	__u32 choice; /* enum dry_choice */
	__u64 zero;
};

_Static_assert(sizeof(struct dry_note) == 32, "metadata of a frame");

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs and internal/forward share of forwarding at XDP. */
#ifndef WAYMARK_FORWARD_ABI_H
#define WAYMARK_FORWARD_ABI_H

enum forward_size {
	FORWARD_PORTS = 256, /* places of the table of ports, a power of two */
	FORWARD_WAYS = 4, /* a port is in one of so many places, from its number on */
	FORWARD_MOST = 64, /* ports at a time */
};

/* What an interface can do. */
enum forward_flag {
	FORWARD_RECEIVES = 1 << 0, /* packets that arrive are forwarded */
	FORWARD_SENDS = 1 << 1, /* its driver sends frames of other drivers */
	FORWARD_SENDS_PARTS = 1 << 2, /* also those in several buffers */
	FORWARD_HIDES_TAGS =
		1 << 3, /* its driver takes VLAN tags out of frames: only a hint shows them */
	FORWARD_STRICT = 1 << 4, /* routes to IPv4 sources have to leave by it (rp_filter 1) */
	FORWARD_VIRTUAL = 1 << 5, /* packets may come without their checksum */
};

/* An interface between which packets are forwarded. Free where iface is 0. */
struct forward_port {
	__u32 iface; /* as flow_slot.iface */
	__u32 flags; /* enum forward_flag */
	__u8 mac[6];
	__u16 zero;
};

/* What became of a packet. All but the first go on to the kernel. */
enum forward_result {
	FORWARD_DONE = 0,
	/* The frame. */
	FORWARD_OTHER_MAC,
	FORWARD_VLAN,
	FORWARD_TAG_UNKNOWN,
	FORWARD_NOT_IP,
	FORWARD_STALE,
	FORWARD_MALFORMED,
	FORWARD_OPTIONS,
	FORWARD_FRAGMENT,
	FORWARD_TTL,
	FORWARD_ADDRESS,
	FORWARD_TUNNEL,
	FORWARD_CHECKSUM,
	FORWARD_CPU,
	/* What bpf_fib_lookup() says of the destination, in its order. */
	FORWARD_BLACKHOLE,
	FORWARD_UNREACHABLE,
	FORWARD_PROHIBIT,
	FORWARD_NOT_FORWARDED,
	FORWARD_DISABLED,
	FORWARD_ENCAPSULATION,
	FORWARD_NO_NEIGHBOUR,
	FORWARD_TOO_BIG,
	FORWARD_NO_SOURCE,
	FORWARD_LOOKUP,
	/* Where the route leads. */
	FORWARD_SOURCE,
	FORWARD_SAME_INTERFACE,
	FORWARD_NO_PORT,
	FORWARD_PARTS,
	FORWARD_REFRESH,
	FORWARD_RESULTS,
};

/* Running totals of an interface, of one CPU. */
struct forward_count {
	__u64 packets[FORWARD_RESULTS];
	__u64 bytes; /* that were forwarded, by the IP header */
};

#endif

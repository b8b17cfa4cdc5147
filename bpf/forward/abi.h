/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs and internal/forward share of forwarding at XDP. */
#ifndef WAYMARK_FORWARD_ABI_H
#define WAYMARK_FORWARD_ABI_H

enum forward_size {
	FORWARD_PORTS = 256, /* places of the table of ports, a power of two */
	FORWARD_WAYS = 4, /* a port is in one of so many places, from its number on */
	FORWARD_MOST = 64, /* ports at a time */
	FORWARD_KNOWN_WAYS = 2048, /* that a CPU remembers, a power of two */
	FORWARD_SOURCE_BITS = 9, /* 2 to the power of so many sources */
	FORWARD_WAYS_MOST = 16384, /* ways of all kinds, see struct forward_way */
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
	/* What the kernel says of an IPv4 source depends on nothing of a packet but that, and its type of service. */
	FORWARD_SOURCES = 1 << 6,
	FORWARD_UPPER = 1 << 7, /* another interface routes what arrives without a tag */
	/* Below are those of balancing, too: see enum balance_flag. */
	FORWARD_ADDRESSES =
		1 << 10, /* not all interfaces above it have the address in forward_port */
	FORWARD_OFFLOADED =
		1 << 11, /* netfilter has rules: only flows of flow tables are forwarded */
};

/* An interface between which packets are forwarded. Free where iface is 0. */
struct forward_port {
	__u32 iface; /* as flow_slot.iface */
	__u32 flags; /* enum forward_flag */
	__u8 mac[6]; /* of frames without a tag that are to be routed */
	__u16 zero;
};

/* Where packets of a flow leave, as the kernel's tables said: a cache line. See forward/known.h. */
struct forward_known_way {
	__u8 saddr[16]; /* to iface as in struct flow_slot */
	__u8 daddr[16];
	__be16 sport;
	__be16 dport;
	__u32 iface;
	__u32 tick; /* in which they said so */
	__u32 kind; /* type of service, flow label, and how sources are judged */
	__u32 ifindex;
	__u16 mtu;
	__u8 proto;
	__u8 place; /* of the interface, in forward_memory.ports, which has its link address */
	__u8 mac[6]; /* of the next hop */
	__u16 generation; /* of the kernel's tables: forward_generation() */
};

/* An IPv4 source that the kernel accepts: address and interface, tick, generation and type of service. */
struct forward_source {
	__u64 word[2];
};

/* Where things are in the kernel's struct flow_offload, in bytes from a direction on. */
struct forward_offload_at {
	__s32 next; /* the tuple of the second direction, from the first */
	__s32 previous; /* the tuple of the first, from the second */
	__s32 bits; /* the byte with the number of the direction, and the way of sending */
};

/* Begins the kernel's struct flow_offload_tuple. IPv4 addresses are in the first four bytes. */
struct forward_tuple {
	__u8 src[16];
	__u8 dst[16];
	__be16 sport;
	__be16 dport;
	__u32 ifindex; /* where it arrives */
};

/* What identifies a packet behind a translation, as in struct flow_slot. */
struct forward_behind {
	__u8 saddr[16];
	__u8 daddr[16];
	__be16 sport;
	__be16 dport;
};

/* What a CPU remembers. */
struct forward_known {
	struct forward_known_way way[FORWARD_KNOWN_WAYS];
	struct forward_source source[1 << FORWARD_SOURCE_BITS];
};

struct forward_tag {
	__be16 proto;
	__u16 vid; /* 0: none */
};

/* What a way is of: of frames with a tag, of an interface that a route leads to, of a station of a bridge. */
enum forward_kind { FORWARD_ARRIVAL = 1, FORWARD_ROUTE, FORWARD_STATION };

struct forward_key {
	__u32 iface; /* the port; the interface of the route; the bridge. As flow_slot.iface */
	struct forward_tag tag; /* FORWARD_ARRIVAL; FORWARD_STATION: the VLAN, without a protocol */
	__u8 mac[6]; /* FORWARD_STATION */
	__u16 kind; /* enum forward_kind */
};

/*
 * How frames get from a port to the interface that routes them, or from there to a port. Interfaces by their index, but for bridge
 * and port, which are as flow_slot.iface.
 */
struct forward_way {
	__u32 device; /* FORWARD_ARRIVAL: it routes */
	__u32 scope; /* likewise: where routes are looked up, itself or its VRF */
	__u32 bridge; /* between them; 0: none */
	__u32 member; /* the port of the bridge where the station is; FORWARD_ARRIVAL: where the sender has to be; 0: anywhere */
	__u32 port; /* where it leaves; 0: where the bridge knows the next hop */
	__u32 room; /* the longest IP packet there */
	__u32 flags; /* FORWARD_ARRIVAL: FORWARD_STRICT */
	__u8 mac[6]; /* FORWARD_ARRIVAL: of the interface that routes */
	__u16 vid; /* of stations of the bridge */
	struct forward_tag tag; /* with which it leaves */
};

#define FORWARD_NEIGHBOUR_BITS 12

/* One map for all of it: Linux lets a program use 64. */
struct forward_memory {
	/* Written by the agent, read by the programs. */
	struct forward_port ports[FORWARD_PORTS];
	/* Likewise, by the same places: of frames without a tag, where FORWARD_UPPER is set. */
	struct forward_way untagged[FORWARD_PORTS];
	/* The agent counts up while it follows changes. Written by the programs: what they saw of it, and since when, in ticks. */
	__u32 beat;
	__u32 seen;
	__u32 tick;
	/* For how many ticks an answer about IPv4 lasts. Written by the agent, which has all changes counted meanwhile. */
	__u32 lasts;
	/* How often neighbours have changed, of all network namespaces. Written by neighbour.bpf.c, read by the programs. */
	__u32 neighbours;
	/*
	 * Written and read by the programs. By a hash of neighbour and period: the period, once one of its packets has
	 * gone to the kernel. With the period in the hash, no two neighbours keep each other from it for longer than that.
	 */
	__u32 fresh[1 << FORWARD_NEIGHBOUR_BITS];
};

/* What became of a packet. All but the first go on to the kernel. */
enum forward_result {
	FORWARD_DONE = 0,
	/* The frame. */
	FORWARD_OTHER_MAC,
	FORWARD_VLAN,
	FORWARD_TAG_UNKNOWN,
	FORWARD_NOT_IP,
	FORWARD_UNRESOLVED,
	FORWARD_UNLEARNED,
	FORWARD_STALE,
	FORWARD_MALFORMED,
	FORWARD_OPTIONS,
	FORWARD_FRAGMENT,
	FORWARD_TTL,
	FORWARD_ADDRESS,
	FORWARD_TUNNEL,
	FORWARD_ICMP_ERROR,
	FORWARD_CHECKSUM,
	FORWARD_CPU,
	FORWARD_NO_FLOW,
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
	FORWARD_NO_STATION,
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

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs and internal/balance share of the balancer. */
#ifndef WAYMARK_BALANCE_ABI_H
#define WAYMARK_BALANCE_ABI_H

enum balance_size {
	BALANCE_RING = 65537, /* entries of a Maglev table, a prime */
	BALANCE_RING_PADDED = 65540,
	BALANCE_NOBODY = 0xffff, /* in an entry: no backend takes new connections */
	BALANCE_SERVICES = 256,
	BALANCE_BACKENDS = 4096, /* of all services */
	BALANCE_WAYS = 8, /* a bucket of the connection table is a cache line */
	BALANCE_GUE_PORT = 6080,
	BALANCE_MARK = 0x57420000, /* of packets of health checks, with the number of a backend */
};

/* What an interface does, besides enum forward_flag. */
enum balance_flag {
	BALANCE_CLIENTS = 1 << 8, /* packets to services are balanced */
	BALANCE_UNWRAPS = 1 << 9, /* packets of balancers are decapsulated */
};

/* An address of a service. IPv4 as ::ffff:a.b.c.d, ports as in the packet. */
struct balance_key {
	__u8 addr[16];
	__be16 port;
	__u8 proto;
	__u8 zero;
};

enum balance_none { BALANCE_NONE_DROP, BALANCE_NONE_RESET, BALANCE_NONE_PASS };

struct balance_service {
	__u64 seed; /* of the hash that chooses */
	__u32 number; /* of its Maglev table, below BALANCE_SERVICES */
	__u8 none; /* enum balance_none: when no backend is healthy */
	__u8 quic; /* connection IDs name backends */
	__u8 quic_config; /* the first three bits of those that do */
	__u8 quic_length; /* bytes of a backend's id, at most 8 */
};

/* A service as a CPU has last looked it up. */
struct balance_known {
	struct balance_key key;
	__u32 version; /* of balance_services; 0: none is known */
	struct balance_service service;
};

enum balance_known_size { BALANCE_KNOWN = 8 }; /* of those on a CPU, a power of two */

/* The Maglev table of a service: numbers of backends. */
struct balance_ring {
	__u16 backend[BALANCE_RING_PADDED];
};

/* What a backend does. */
enum balance_state {
	BALANCE_FREE = 0, /* there is none of the number */
	BALANCE_UP, /* connections go there; whether new ones do, the Maglev table says */
	BALANCE_DOWN, /* its connections go elsewhere */
};

enum balance_forwarding { BALANCE_L2, BALANCE_IPIP, BALANCE_GUE };

struct balance_backend {
	__u8 addr[16];
	__u8 source[16]; /* of outer headers */
	__u32 state; /* enum balance_state */
	__u16 service; /* its number */
	__u8 forwarding; /* enum balance_forwarding */
	__u8 ipv6; /* its own address, not that of the service */
	__u32 out; /* the interface where the route to it leads, for health checks; 0: nowhere */
	__u32 zero;
};

/* By CPU: where packets to a backend leave, as the kernel's tables said in this tick. */
struct balance_hop {
	__u32 tick;
	__u32 ifindex;
	__u16 mtu;
	__u8 result; /* enum balance_result */
	__u8 known;
	__u8 dmac[6];
	__u8 smac[6];
};

/*
 * A connection in 64 bits, so that it is read and written as a whole: upper half of its hash, backend, state and
 * when it was last seen. Two with the same 32 bits in one bucket share a backend, which breaks neither.
 */
enum balance_entry {
	BALANCE_HASH_SHIFT = 32,
	BALANCE_BACKEND_SHIFT = 20, /* 12 bits */
	BALANCE_STAGE_SHIFT = 16, /* 2 bits, enum balance_stage */
	BALANCE_SEEN_MASK = 0xffff, /* in units of 2 to the power of cfg_balance_shift ticks */
};

enum balance_stage {
	BALANCE_EMPTY = 0,
	BALANCE_NEW, /* one packet was seen, or none but SYNs */
	BALANCE_ESTABLISHED,
	BALANCE_CLOSING, /* FIN or RST was seen */
};

struct balance_bucket {
	__u64 way[BALANCE_WAYS];
};

/* Shared with the agent: one map for all of it. */
struct balance_memory {
	/* Written by the agent, read by the programs. */
	struct forward_port ports[FORWARD_PORTS];
	/* Of balance_services: the agent counts up after each change. */
	__u32 version;
	/* The unit of the latest packet, for the agent. Written by the programs, seldom. */
	__u32 now;
};

/* The backend that a QUIC connection ID names. */
struct balance_id {
	__u64 id; /* its bytes as they are in the packet, then zeros */
	__u32 service;
	__u32 zero;
};

/* Who may send encapsulated packets. */
struct balance_source {
	__u32 bits;
	__u8 addr[16];
};

/* What became of a packet. Up to BALANCE_LAST_PASSED, all but the first go on to the kernel. */
enum balance_result {
	BALANCE_DONE = 0,
	/* The frame: as enum forward_result. */
	BALANCE_OTHER_MAC,
	BALANCE_VLAN,
	BALANCE_TAG_UNKNOWN,
	BALANCE_NOT_IP,
	BALANCE_MALFORMED,
	BALANCE_TUNNEL,
	BALANCE_NO_SERVICE,
	BALANCE_FRAGMENT,
	BALANCE_CHECKSUM,
	BALANCE_CPU,
	BALANCE_NONE_PASSED,
	BALANCE_UNWRAPPED,
	BALANCE_STRANGER,
	BALANCE_UNWRAP_FRAGMENT,
	BALANCE_LAST_PASSED = BALANCE_UNWRAP_FRAGMENT,
	/* Answered. */
	BALANCE_TOO_BIG,
	BALANCE_REFUSED,
	/* Dropped. */
	BALANCE_NONE_DROPPED,
	BALANCE_UNANSWERED,
	BALANCE_NO_ROUTE,
	BALANCE_DISABLED,
	BALANCE_NO_NEIGHBOUR,
	BALANCE_LOOKUP,
	BALANCE_NO_PORT,
	BALANCE_PARTS,
	BALANCE_UNWRITABLE,
	BALANCE_RESULTS,
};

/* Running totals of an interface, or of a service, of one CPU. */
struct balance_count {
	__u64 packets[BALANCE_RESULTS];
	__u64 over_budget; /* packets without an entry in the connection table: too many new ones */
	__u64 full; /* likewise: all entries of the bucket are in use */
	__u64 moved; /* connections whose backend was down or gone */
};

/* Running totals of a backend, and the way there, of one CPU. */
struct balance_load {
	__u64 packets;
	__u64 bytes; /* by the IP header, without what is put around it */
	__u64 connections; /* that were added to the table */
	struct balance_hop hop;
};

#endif

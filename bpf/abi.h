/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Every struct and enum that the BPF programs share with user space. Go types
 * and names are generated from here; nothing is written down twice.
 */
#ifndef WAYMARK_ABI_H
#define WAYMARK_ABI_H

/*
 * Buckets of a histogram: below 2^DELAY_MIN_BITS ns the first, then
 * 2^DELAY_SUB_BITS of equal width to each power of two.
 */
enum delay {
	DELAY_SUB_BITS = 3,
	DELAY_MIN_BITS = 10,
	DELAY_BUCKETS = 208,
};

/* What identifies a flow, together with its protocol. */
#define FLOW_IDENTITY   \
	__u8 saddr[16]; \
	__u8 daddr[16]; \
	__be16 sport;   \
	__be16 dport;   \
	__u32 iface;    \
	__u32 meta

#include "mark/abi.h"
#include "ioam/abi.h"
#include "ioam/path_abi.h"
#include "ioam/direct_abi.h"
#include "pdm/abi.h"
#include "gate/abi.h"
#include "gate/ban_abi.h"
#include "gate/cookie_abi.h"
#include "gate/detect_abi.h"
#include "forward/abi.h"
#include "balance/abi.h"
#include "dry_abi.h"

/* The two ways across an interface; the value is a bit of flow_slot.meta. */
enum direction {
	DIRECTION_INGRESS = 0,
	DIRECTION_EGRESS = 1,
};

/*
 * The link header of a frame. A tag is "accelerated" when it travels in
 * skb->vlan_tci and so is part of neither skb->data nor skb->len.
 */
enum l2 {
	L2_NONE = 0, /* layer 3 device: tun, wireguard, ipip */
	L2_ETHER = 1,
	L2_TAG = 2,
	L2_TAG_ACCEL = 3,
	L2_TAG2 = 4,
	L2_TAG2_ACCEL = 5, /* the outer tag is accelerated */
	L2_FORWARDED = 6, /* by XDP: see forward/account.h */
	L2_FREE = 7, /* of no packet: in a slot that the agent freed */
};

/* What was taken off to reach the flow, when inner flows are asked for. */
enum tunnel {
	TUNNEL_NONE = 0,
	TUNNEL_VXLAN = 1,
	TUNNEL_GENEVE = 2,
	TUNNEL_GRE = 3,
	TUNNEL_IPIP = 4, /* protocol 4 or 41, in IPv4 or IPv6 */
};

/* The bits of flow_slot.meta, from bit 0. */
enum meta {
	META_DIRECTION_SHIFT = 0, /*  1 bit,  enum direction */
	META_IPV6_SHIFT = 1, /*  1 bit */
	META_L2_SHIFT = 2, /*  3 bits, enum l2 */
	META_TUNNEL_SHIFT = 5, /*  3 bits, enum tunnel */
	META_VLAN_SHIFT = 8, /* 12 bits, outer VLAN id */
	META_INNER_VLAN_SHIFT = 20, /* 12 bits, inner VLAN id */
	/* With L2_FORWARDED, in place of tags. */
	META_OTHER_SHIFT = 8, /* 22 bits, index of the interface on the other side */
	META_BOTH_SHIFT = 30, /*  1 bit: the slot also is that of the flow there, at the egress */
	META_AGED_SHIFT = 31, /*  1 bit: ... which has a TTL that is lower by one */
	META_TAGGED_SHIFT =
		META_AGED_SHIFT, /* without the bit before: frames have a tag, which is where it is in others, and
					      * the interface on the other side is in flow_extra.vni */
	/* flow_slot.iface: number of the network namespace above the ifindex. */
	IFACE_NETNS_SHIFT = 22,
};

/*
 * A flow in one epoch: one cache line. The fields up to proto are its
 * identity. IPv4 addresses are stored as ::ffff:a.b.c.d. Ports are in network
 * byte order; ICMP has the echo identifier (else 0) as source port and
 * type << 8 | code as destination port. In a free slot packets is 0, and meta is
 * 0, as is all else, or that of no packet.
 */
struct flow_slot {
	FLOW_IDENTITY;
	__u8 proto;
	__u8 tos; /* of the first packet: DSCP and ECN */
	__u8 ttl; /* of the latest packet; range in flow_extra */
	__u8 tcp_flags; /* low eight bits, or of all packets */
	__u32 packets; /* on the wire: GSO segments, not skbs */
	__u32 bytes; /* IP bytes, headers included, per segment */
	__u32 payload; /* bytes above the transport header */
	__u32 last; /* ticks of the kernel's timer (jiffies), low 32 bits */
};

/* How TCP connections begin. Their flags or'ed do not tell: both ends set SYN and ACK. */
enum opening {
	OPENING_SYN = 1 << 0, /* SYN without ACK: the source is the initiator */
	OPENING_SYN_ACK = 1 << 1, /* the destination is */
};

/* What most packets of a flow don't touch; same index as the slot. */
struct flow_extra {
	__u64 overhead; /* bytes on the wire beyond link header and IP length:
                        * Ethernet padding, and the tunnel of an inner flow */
	__u32 first; /* as flow_slot.last */
	__u32 flow_label; /* of the first packet, 20 bits */
	__u32 gso_packets; /* segments beyond the first of each skb */
	__u32 gso_bytes; /* bytes on the wire beyond those of the skbs: headers
                         * that these segments repeat */
	__u32 ce_packets; /* ECN congestion experienced */
	__u32 fragments; /* packets that are IP fragments */
	__u32 vni; /* VXLAN, Geneve; GRE key. With META_TAGGED_SHIFT: interface on the other side */
	union {
		__u32 rtt_responder; /* TCP: ns from SYN to SYN-ACK; 0: not seen */
		__u32 first_ns; /* else: low half of the monotonic time of the first
				 * packet; 0: `first` is all that is known */
	};
	__u32 rtt_initiator; /* ns from SYN-ACK to ACK; 0: not seen */
	__u8 ttl_min;
	__u8 ttl_max;
	__u8 tcp_flags_high; /* AE and three reserved bits */
	__u8 opening; /* enum opening, or of all packets */
};

/* Ways of a set: a new flow looks at two sets before it evicts. */
enum flow_ways { FLOW_WAYS = 4 };

struct flow_set {
	struct flow_slot way[FLOW_WAYS];
};

struct flow_extra_set {
	struct flow_extra way[FLOW_WAYS];
};

/* Of one set: the loader makes chunks of more. Slots of all sets come first. */
struct flow_chunk {
	struct flow_set slots;
	struct flow_extra_set extras;
};

/* A flow that left its set before the drain: the element of the ring. */
struct flow_evicted {
	struct flow_slot slot;
	struct flow_extra extra;
};

/*
 * What the headers of a packet tell. `id` is compared by words of 64 bits, when
 * the packet has waited for some others: a processor that has to join several
 * stores for one load waits for all of them.
 */
struct packet {
	union {
		struct flow_slot id; /* a flow of this packet alone */
		__u64 word[8];
	};
	union {
		__u64 hash; /* of the identity */
		struct {
			__u32 hash_low;
			__u32 hash_high;
		};
	};
	__u32 l4_offset; /* of the transport header, from the frame's start */
	__u32 rare; /* not 0: there is more to count than a slot can hold */
	__u32 overhead; /* from here to fragment as in flow_extra */
	__u32 flow_label;
	__u32 gso_packets; /* from here to rtt_initiator: most packets have none */
	__u32 gso_bytes;
	__u32 vni;
	__u8 tcp_flags_high;
	__u8 fragment; /* enum fragment */
	__u8 frag_proto; /* IPv4: of the IP header, part of a fragment's identity */
	__u8 opening;
	union {
		__u32 rtt_responder;
		__u32 first_ns;
	};
	__u32 rtt_initiator;
	__u32 frag_id;
	__u32 l3_offset; /* of the IP header that `id` describes */
	__u32 l4_len; /* bytes of the transport header */
	__u32 repeated; /* of a GSO frame: bytes that each segment begins with */
};

/* What code in C relies on; the Go types are generated from these. */
_Static_assert(sizeof(struct flow_slot) == 64, "a slot is a cache line");
_Static_assert(sizeof(struct flow_extra) % 8 == 0, "extras are copied in words");
_Static_assert(offsetof(struct packet, hash) == sizeof(struct flow_slot),
	       "a packet is a slot first");
_Static_assert(META_IPV6_SHIFT == META_DIRECTION_SHIFT + 1 &&
		       META_L2_SHIFT == META_IPV6_SHIFT + 1 &&
		       META_TUNNEL_SHIFT == META_L2_SHIFT + 3 &&
		       META_VLAN_SHIFT == META_TUNNEL_SHIFT + 3 &&
		       META_INNER_VLAN_SHIFT == META_VLAN_SHIFT + 12 &&
		       META_INNER_VLAN_SHIFT + 12 == 32 && META_OTHER_SHIFT == META_VLAN_SHIFT &&
		       META_BOTH_SHIFT == META_OTHER_SHIFT + IFACE_NETNS_SHIFT &&
		       META_AGED_SHIFT == META_BOTH_SHIFT + 1,
	       "flow_slot.meta has 32 bits, and none twice");

/*
 * Offsets in struct sk_buff, and of gso_type in struct skb_shared_info, from the
 * kernel's type information. All 0: not known.
 */
struct skb_offsets {
	__u32 head; /* data follows */
	__u32 end;
	__u32 transport;
	__u32 inner_transport;
	__u32 gso_type;
	__u32 dev;
	__u32 gso_max_size; /* of the device */
};

#include "gate/drop_abi.h"

/* Packets that wait until they are as many as this, and are counted together. */
enum flow_batch_size { FLOW_BATCH = 16 };

/* Those of one CPU in one epoch, and its part of the table; packets begin at a cache line. */
struct flow_batch {
	__u32 waiting;
	__u32 tick; /* in which exact times were taken, and how many; see flow/handshake.h */
	__u32 exact;
	__u32 sets; /* of the flow table, in use; written by the agent */
	__u32 first_chunk; /* where they begin; likewise */
	__u32 evicted; /* flows that left their set */
	__u32 zero[10];
	struct packet packet[FLOW_BATCH];
};

_Static_assert(offsetof(struct flow_batch, packet) == 64, "packets begin at a cache line");

/* Packets whose flow could not be kept, summed by what is left of the key. */
struct unattributed_key {
	__u32 iface;
	__u8 meta; /* direction, IPv6, l2, tunnel: the low bits of flow_slot.meta */
	__u8 proto;
	__u16 zero;
};

/* Ports of a first fragment, for the later ones (RFC 791, RFC 8200 4.5). */
struct fragment_key {
	__u8 saddr[16];
	__u8 daddr[16];
	__u32 iface;
	__u32 id;
	__u32 meta; /* of flow_slot.meta: direction, IPv6, tunnel, VLANs */
	__u32 vni;
	__u32 proto; /* IPv4 only: an IPv6 id is unique without it */
};

struct fragment_ports {
	__u64 time; /* CLOCK_MONOTONIC_COARSE of the first fragment, ns */
	__be16 sport;
	__be16 dport;
	__u32 proto;
};

struct unattributed_sum {
	__u64 packets;
	__u64 bytes;
	__u64 payload;
	__u64 overhead;
	__u64 gso_packets;
	__u64 gso_bytes;
};

/*
 * A TCP handshake in progress on one interface. Matched by a 64-bit hash of
 * both ends and by the sequence numbers, so a slot that another handshake took
 * over is never mistaken. A SYN of a handshake that lost its slot is a
 * retransmission, although it looks new.
 */
struct handshake {
	__u64 hash;
	__u64 syn; /* monotonic ns; 0: retransmitted, so no round trip */
	__u64 syn_ack; /* likewise */
	__u32 syn_seq;
	__u32 syn_ack_seq;
	__u32 initiator; /* high half of the hash of its flow */
	__u32 period; /* that `lost` is of */
	__u64 lost; /* Bloom filter of the unfinished handshakes that lost this slot */
	__u64 lost_before; /* likewise in the period before */
};

/* Bits of cfg_features: what few hooks need. */
enum feature {
	FEATURE_SAMPLING = 1 << 0,
	FEATURE_NO_LINK = 1 << 1, /* frames begin with the IP header: no link header */
	FEATURE_TUNNELS = 1 << 2, /* inner flows are counted */
	FEATURE_PDM = 1 << 3, /* packets that policy names are marked, marked ones read */
	FEATURE_IOAM = 1 << 4, /* the interface belongs to an IOAM node */
	FEATURE_GATE = 1 << 5, /* packets meet the rules of the gate */
	FEATURE_HINTS = 1 << 6, /* the program is bound to its device, whose driver may be called */
	FEATURE_META = 1 << 7, /* hints are passed on, in front of each frame */
	FEATURE_FORWARD = 1 << 8, /* packets are forwarded at XDP */
	FEATURE_BALANCE = 1 << 9, /* packets go to backends of services, or come from balancers */
	FEATURE_OFFLOAD = 1 << 10, /* the kernel shows flow tables of netfilter to programs */
};

/* A hash has so many keys; the loader writes them in place of these numbers and up. */
enum hash_keys { HASH_KEYS = 12, HASH_KEY = 0x6b657900 };

enum handshakes { HANDSHAKES = 65536 };

enum seen_flows { SEEN_FLOWS = 16384 };

/* Why a packet is in no flow record, or what could not be learned of it. */
enum reason {
	/* The packet is in no flow. */
	REASON_ARP = 0,
	REASON_ETHERTYPE, /* neither IPv4 nor IPv6 */
	REASON_VLAN_DEPTH, /* more than two tags */
	REASON_TRUNCATED, /* shorter than its link or IP header */
	REASON_MALFORMED, /* a length, version or IHL that cannot be */
	REASON_EXT_CHAIN, /* more than eight IPv6 extension headers */
	REASON_UNREADABLE, /* the kernel could not make the headers linear */
	REASON_SAMPLED_OUT,
	REASON_CPU_UNKNOWN, /* a processor that was not there at the start */
	REASON_UNATTRIBUTED_FULL, /* the sum by protocol was full, too */
	REASON_AF_XDP, /* an AF_XDP socket took it at XDP */
	REASON_DROPPED_BY_RULE, /* a rule of the gate, or a ban, dropped it, and its flow is not known or could not be kept */
	REASON_ANSWERED_BY_RULE, /* a SYN that a rule of the gate answered with a cookie, and the answer of XDP */
	REASON_NO_FLOW, /* a rule of the gate says that there is no record of it */
	/* The packet is in a flow. */
	REASON_FRAGMENT_UNMATCHED, /* its first fragment was not seen: ports 0 */
	REASON_FRAGMENT_LOST, /* its ports could not be remembered */
	REASON_HANDSHAKE_LOST, /* no round trip: a handshake took the place of another */
	REASON_GSO_INEXACT, /* what its segments repeat is not known: too few bytes */
	REASON_MAX,
};

/* The first reason that does not take the packet out of the flows. */
enum reason_class { REASON_FIRST_COUNTED = REASON_FRAGMENT_UNMATCHED };

struct count_key {
	__u32 iface;
	__u8 direction;
	__u8 reason;
	__u16 used; /* 1 in the cache, 0 in the map `counts` */
};

struct count_value {
	__u64 packets; /* GSO segments */
	__u64 frames; /* skbs */
	__u64 bytes; /* skb->len */
};

/* A place of the cache in front of `counts`, see count.h. */
struct count_slot {
	__u64 key; /* struct count_key; 0: free */
	struct count_value value;
};

enum count_slots { COUNT_SLOTS = 64 };

/* Of one CPU. */
struct count_cache {
	struct count_slot slot[COUNT_SLOTS];
};

/* What happened to the flow table, per CPU. */
struct table_stats {
	__u64 evicted; /* slots handed to the ring */
	__u64 unattributed; /* packets that found the ring full */
	__u64 counts_full; /* packets whose reason did not fit into counts */
};

#endif

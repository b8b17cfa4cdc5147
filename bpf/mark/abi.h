/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What stages that insert into packets share with user space, and with each other.
 * Times are CLOCK_MONOTONIC in nanoseconds. Included by bpf/abi.h.
 */
#ifndef WAYMARK_MARK_ABI_H
#define WAYMARK_MARK_ABI_H

/* What is inserted. Whether it arrives is learned of each kind: fewer paths take Hop-by-Hop options. */
enum mark_kind {
	MARK_PDM = 0,
	MARK_IOAM_HOP, /* options that nodes on the path process */
	MARK_IOAM_DEST, /* options in Destination Options only */
	MARK_IOAM_OUTER, /* options behind an outer header, which the end of the tunnel removes */
	MARK_KINDS,
};

/* skb->priority of what the agent sends, set by internal/export/ownsocket and internal/inband/ioam. */
enum mark_own {
	MARK_OWN_PRIORITY = 0x574d0000, /* what it exports */
	MARK_ECHO_PRIORITY =
		0x574d0100, /* a question to the end of a tunnel: see bpf/ioam/echo.h */
	MARK_OWN_BITS = 0xffff0000,
};

/* A 5-tuple from the local host's view: remote is where packets are sent. */
struct mark_key {
	__u8 local[16]; /* all of it is written by words of 64 bits: key_of() */
	__u8 remote[16];
	__be16 lport; /* ICMPv6 echo: the identifier, so a flow is one ping */
	__be16 rport; /* ICMPv6: 0 */
	__u16 netns;
	__u8 proto;
	__u8 kind; /* enum mark_kind */
};

/*
 * What is known of whether marked packets of a flow arrive, and how long they may
 * be: see guard.h for TCP, datagram.h for other protocols. Written when a packet is
 * sent, by whole fields; `mtu` and `narrowed` also when a Packet Too Big is received.
 */
struct mark_guard {
	/* What each packet needs. */
	__u64 checked; /* when a packet left, marked or not, to the second */
	__u64 fallback; /* no packet is marked before this time */
	__u32 named; /* datagrams: pdm_state.echoed when the packet before was sent */
	__u32 iface; /* where the flow leaves first: below, its packets are seen again */
	__u32 sent_end; /* TCP: sequence number after all that was sent */
	__u32 last_ack; /* TCP: acknowledgment number sent last */
	__u16 flags; /* enum guard */
	__u16 watch_len; /* length of the watched segment as an IP packet; 0: none is awaited */
	__u16 shown; /* longest packet known to have arrived; 0: none */
	__u16 mtu; /* longest packet that the path takes; 0: not known */
	__u8 strikes; /* marked packets in a row that are not known to have arrived */
	__u8 size_strikes; /* likewise, of segments longer than all that arrived */
	__u8 tcp_header; /* length of the shortest TCP header */
	__u8 backoff; /* datagrams: times in a row that the flow fell back */

	__u16 unmarked; /* packets since one was tried */
	__u16 mark; /* bytes by which marks make the watched segment longer */
	__u32 watch_seq; /* TCP: the segment whose acknowledgment is awaited */
	__u32 watch_end;
	__u64 narrowed; /* when mtu was learned */
	__u64 arrived; /* when a marked packet was last known to have arrived; 0: none */
	__u64 struck; /* when a strike was counted last */
	__u64 failing; /* when the first of these strikes was */
	__u64 watched; /* TCP: when the watched segment was sent */
};

enum guard {
	GUARD_TCP = 1, /* sent_end and last_ack are set */
	GUARD_PASSED = 2, /* marked packets are known to arrive */
	GUARD_WATCH_MARKED = 4, /* the watched segment is marked */
	GUARD_ACK_MARKED = 8, /* last_ack was sent in a marked packet without payload */
	GUARD_CAREFUL = 16, /* another flow to the destination fell back */
	GUARD_RESENT = 32, /* the watched segment was sent again, without a mark */
	GUARD_LOST = 64, /* ... and that was lost, too */
	GUARD_LIMITED = 128, /* some segments went unmarked for the limit of marks */
	GUARD_WATCH_EMPTY = 256, /* the watched segment has no payload: a SYN or FIN */
	GUARD_FIN = 512, /* the flow has sent its last data */
};

/*
 * A destination, whatever the flow; or a service there, or here for that destination: a
 * protocol and the lower of the two ports, or 0 if both may be a client's.
 */
struct mark_path_key {
	__u8 remote[16];
	__u32 netns;
	__be16 port;
	__u8 proto; /* 0: the destination */
	__u8 kind; /* enum mark_kind; what is known of lengths is kept under MARK_PDM, for all */
};

/* What flows learned of the path to a destination, or to a service. */
struct mark_path {
	__u64 shown_at; /* destination: when `shown` was learned */
	__u64 narrowed; /* destination: when `mtu` was learned */
	__u64 passed; /* when a marked packet was last known to have arrived */
	__u64 blocked; /* no packet is marked before this time */
	__u64 quiet; /* none is tried before this time: datagrams of a destination, TCP of a service */
	__u64 tried; /* destination: when a datagram was tried last */
	__u64 closed; /* end of a tunnel: no packet is put into it before this time */
	__u16 shown; /* as in mark_guard */
	__u16 mtu;
	__u8 strikes; /* flows in a row that fell back */
	__u8 tries; /* destination: datagrams tried since any packet was known to arrive */
	__u8 backoff; /* times in a row that `quiet` was set */
	__u8 zero;
};

/* Running counts, per CPU and kind. */
struct mark_totals {
	__u64 fallbacks; /* flows whose marked packets did not arrive */
	__u64 blocked; /* destinations to which no marked packet arrived */
	__u64 narrowed; /* paths that turned out to take less than expected */
};

/* Why a packet was not marked, of those that a policy names. */
enum mark_reason {
	MARK_LOOPBACK = 0,
	MARK_OWN, /* what the agent itself exports (RFC 9326 3.1) */
	MARK_ADDRESS, /* multicast or link-local, which a policy must name itself */
	MARK_FRAGMENT,
	MARK_ESP, /* options belong inside the ciphertext */
	MARK_AH, /* covers extension headers */
	MARK_NEIGHBOR, /* neighbor and multicast listener discovery */
	MARK_ICMP_ERROR, /* an ICMPv6 error, which must not exceed 1280 bytes (RFC 4443 2.4) */
	MARK_TRANSIT, /* forwarded: only its source may insert options (RFC 8200 4) */
	MARK_TUNNEL, /* seen inside a tunnel */
	MARK_MARKED, /* carries such an option already */
	MARK_VERSION2, /* carries PDMv2, which is not supported; both directions */
	MARK_JUMBOGRAM,
	MARK_TOO_LONG, /* would exceed 65535 bytes, or what the device takes of a burst */
	MARK_CHAIN, /* extension headers that can't be followed; both directions */
	MARK_DEEP, /* extension headers longer than are moved */
	MARK_FULL_HEADER, /* the header with its options is full */
	MARK_MTU, /* would exceed the interface's MTU */
	MARK_PATH_MTU, /* would exceed what the path takes */
	MARK_MSS, /* would exceed the longest segment that its socket sends */
	MARK_UNPROVEN, /* no such packet, this long or marked, is known to have arrived yet */
	MARK_RESENT, /* TCP sent it before, and goes the sure way now */
	MARK_DUP_ACK, /* acknowledges what the segment before did, and goes the sure way, too */
	MARK_FALLBACK, /* marked packets of its flow, service or destination do not arrive */
	MARK_LIMITED, /* its flow has had the marks that a second allows */
	MARK_BURST, /* GSO, where every packet on the wire needs its own number */
	MARK_BURST_TUNNEL, /* GSO whose segments have more headers than are known */
	MARK_BURST_CHECKSUM, /* UDP GSO whose checksum the kernel would lose track of */
	MARK_FRAME, /* the kernel takes its IP header to be elsewhere: tagged in-band, or sent raw */
	MARK_NO_SPACE, /* the kernel could not enlarge the packet */
	MARK_NEW_REFUSED, /* too many new flows in this second, or no free entry */
	MARK_NEW_FAILED, /* the state could not be kept */
	MARK_BROKEN, /* dropped: it could not be finished once it was changed */
	MARK_MALFORMED, /* an option of impossible length, or two of them; both directions */
	MARK_REASON_MAX,
};

#endif

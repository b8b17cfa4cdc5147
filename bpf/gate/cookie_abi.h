/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* SYN cookies, as internal/gate prepares them and the programs use them. */
#ifndef WAYMARK_GATE_COOKIE_ABI_H
#define WAYMARK_GATE_COOKIE_ABI_H

/* What SYN-ACKs on an interface say. */
enum gate_answers {
	GATE_ANSWERS_SCALE = 15, /* bits of the window scale; 15: none is offered */
	GATE_ANSWERS_STAMPS = 1 << 4, /* options are kept in timestamps */
	GATE_ANSWERS_SACK = 1 << 5,
	GATE_ANSWERS_SEND = 1 << 6, /* the hook can send */
};

/* What became of a packet that a syncookie rule decided about. */
enum gate_cookie_count {
	GATE_COOKIE_ANSWERED, /* a SYN got a cookie */
	GATE_COOKIE_RETURNED, /* an ACK returned a valid cookie */
	GATE_COOKIE_SOCKET, /* passed: it belongs to a connection */
	GATE_COOKIE_STRAY, /* passed: neither connection nor cookie; the kernel resets few of them per second */
	GATE_COOKIE_DROPPED, /* likewise, beyond that limit */
	/* Passed: the kernel answers such a SYN itself. */
	GATE_COOKIE_NO_LISTENER, /* no socket of this host listens */
	GATE_COOKIE_NOT_LOCAL, /* the destination is no address of this host */
	GATE_COOKIE_SOURCE, /* nobody can be answered at this source */
	GATE_COOKIE_QUEUE, /* the listener's queue has space (net.ipv4.tcp_syncookies is 1), or accepts no connection */
	GATE_COOKIE_REFUSED, /* the kernel makes no cookie */
	GATE_COOKIE_HEADERS, /* IP options, extension headers, fragments, or a damaged header */
	GATE_COOKIE_DATA, /* the SYN has data */
	GATE_COOKIE_CANNOT_SEND, /* this hook of the interface cannot send */
	GATE_COOKIE_COUNTS,
};

/* Where struct sock and struct tcp_sock have what decides about the window scale; 0: not known. */
struct gate_sock_offsets {
	__u32 locks; /* of the byte with sk_userlocks */
	__u32 shift; /* in it */
	__u32 clamp; /* window_clamp */
};

/* An address of this host. */
struct gate_local_key {
	__u64 high; /* as in gate_node */
	__u64 low;
	__u32 netns;
	__u32 ipv6;
};

#endif

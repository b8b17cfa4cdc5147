/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Packets that somebody captures, as the programs write them and internal/gate reads them. */
#ifndef WAYMARK_GATE_CAPTURE_ABI_H
#define WAYMARK_GATE_CAPTURE_ABI_H

/* Which packets are captured: bits of gate_control.capture. */
enum gate_capture {
	GATE_CAPTURE_DROPPED = 1 << 0,
	GATE_CAPTURE_SAMPLED = 1 << 1, /* by a rule */
	GATE_CAPTURE_PASSED = 1 << 2,
};

/* The head of an element of the ring; bytes of the frame follow. */
struct gate_packet {
	__u64 time; /* monotonic ns */
	__u64 received; /* by the clock of the network card; 0: not known */
	__u32 iface; /* as in flow_slot */
	__u32 decided; /* id of the rule that decided; 0: none */
	__u32 sampled; /* id of the rule that sampled; 0: none */
	__u32 length; /* of the frame */
	__u32 captured; /* bytes that follow */
	__u32 hash;
	__u32 packets; /* that the frame stands for */
	__u32 queue; /* on which it arrived */
	__u16 tag_proto; /* of a VLAN tag that is not in the frame; 0: none */
	__u16 tag_tci;
	__u8 action; /* enum gate_action */
	__u8 hook; /* enum gate_hook */
	__u8 received_source; /* enum hint_source, from here on */
	__u8 hash_source;
	__u8 tag_source;
	__u8 no_link; /* the frame begins with the IP header */
	__u8 hash_l4; /* ports are in the hash */
	__u8 zero[5];
};

_Static_assert(sizeof(struct gate_packet) == 64, "no bytes that are left unwritten");

/* Of one CPU; running totals. */
struct gate_captured {
	__u64 packets; /* in the ring */
	__u64 limited; /* beyond the rate */
	__u64 full; /* found the ring full */
	struct gate_packet
		head; /* of the packet that is captured now: the stack has no space for it */
};

#endif

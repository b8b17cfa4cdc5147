/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What direct export and loopback share with user space: direct.h, loopback.h. Included by bpf/abi.h. */
#ifndef WAYMARK_IOAM_DIRECT_ABI_H
#define WAYMARK_IOAM_DIRECT_ABI_H

enum ioam_direct_size {
	IOAM_DIRECT_DATA = 128, /* bytes of node data, without the data of a schema */
	IOAM_DIRECT_WAITING = 4096, /* records that wait for the egress */
};

/* What a node exports of a packet: the element of ioam_direct_records. */
struct ioam_direct_record {
	__u64 received; /* CLOCK_MONOTONIC, ns */
	__u8 source[16];
	__u8 destination[16];
	__u32 iface; /* where the packet arrived */
	__u32 fields; /* Trace-Type as in struct ioam_trace */
	__u32 flow; /* flow id and sequence number, where `extension` has them */
	__u32 sequence;
	__u32 packets; /* a GSO burst counts as its segments */
	__be16 sport; /* 0: the protocol has no ports */
	__be16 dport;
	__u16 space;
	__u16 bytes; /* of data */
	__u16 schema_bytes;
	__u8 flags;
	__u8 extension; /* Extension-Flags (RFC 9326 section 3.2) */
	__u8 proto;
	__u8 zero[7];
	__u8 data[IOAM_DIRECT_DATA]; /* as a node adds them to a trace */
	__u8 schema[IOAM_SCHEMA_MAX];
};

/* A trace that is to be sent back to the source of its packet: the other element of that ring, of another size. */
struct ioam_copy {
	__u8 source[16]; /* of the packet: where the copy goes */
	__u32 iface; /* where the packet arrived */
	__u32 len; /* of the option */
	__u8 option[IOAM_SCHEMA_MAX + 16]; /* with the data of this node */
};

/* A record that waits. */
struct ioam_direct_key {
	__u64 received;
	__u16 space;
	__u16 number; /* of the option among those for direct export */
	__u32 zero;
};

#endif

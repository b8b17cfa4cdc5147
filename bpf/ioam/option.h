/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Encoding of IOAM options (RFC 9486) and of their trace (RFC 9197 section 4.4). */
#ifndef WAYMARK_IOAM_OPTION_H
#define WAYMARK_IOAM_OPTION_H

#define IOAM_OPTION_CHANGES 0x31 /* Option Type of options that nodes on the path change */
#define IOAM_OPTION_STAYS 0x11 /* and of those that they do not */

/* Largest header is 2048 bytes; options walked in it, of which padding is one, too. */
#define IOAM_OPTIONS_MAX 32

/* An option with a trace, up to the node data. */
struct ioam_trace {
	__u8 option;
	__u8 len; /* without the two bytes before */
	__u8 reserved;
	__u8 type; /* enum ioam_type */
	__be16 space;
	__be16 lengths; /* NodeLen(5) Flags(4) RemainingLen(7) */
	__be32 fields; /* Trace-Type(24) Reserved(8) */
};

/* An edge-to-edge option, up to its fields (RFC 9197 section 4.6). */
struct ioam_edge_header {
	__u8 option;
	__u8 len;
	__u8 reserved;
	__u8 type;
	__be16 space;
	__be16 fields;
};

/* E2E-Type (RFC 9197 section 4.6). */
#define IOAM_E2E_LONG 0x8000
#define IOAM_E2E_SHORT 0x4000
#define IOAM_E2E_SECONDS 0x2000
#define IOAM_E2E_FRACTION 0x1000

#define IOAM_HEADER sizeof(struct ioam_trace)
#define IOAM_NODELEN 0xf800
#define IOAM_REMAINING 0x7f
#define IOAM_OVERFLOW 0x400
#define IOAM_LOOPBACK 0x200 /* nodes send a copy back (RFC 9322) */
#define IOAM_NODELEN_SHIFT 11

/* Bit n of the Trace-Type, in ioam_trace.fields. */
#define IOAM_BIT(n) (1u << (31 - (n)))
#define IOAM_WIDE (IOAM_BIT(8) | IOAM_BIT(9) | IOAM_BIT(10)) /* eight bytes each */
#define IOAM_SNAPSHOT IOAM_BIT(22)
#define IOAM_FIELDS (0xffffff00 & ~(IOAM_SNAPSHOT | IOAM_BIT(23)))
#define IOAM_TIMES (IOAM_BIT(2) | IOAM_BIT(3))
/* Fields that are known when the packet leaves. */
#define IOAM_QUEUES (IOAM_BIT(6) | IOAM_BIT(11))
#define IOAM_AT_EGRESS (IOAM_BIT(1) | IOAM_BIT(4) | IOAM_BIT(9) | IOAM_QUEUES)
#define IOAM_CHECKSUM IOAM_BIT(7)
#define IOAM_LOOPBACK_FIELDS \
	IOAM_BIT(0) /* the only Trace-Type with that flag (RFC 9322 section 4.1) */

#define IOAM_UNKNOWN 0xffffffff
#define IOAM_NO_ID 0xffffff /* of a node: it has none */

#define IOAM_BODY 4 /* offset in an option, of what is behind IOAM-Opt-Type */

/* Results besides enum ioam_reason. */
#define IOAM_PASS (-1)
#define IOAM_GROWS (-2) /* an incremental trace, to which data are added where the packet leaves */

/* Transit delay: 31 bits, and one that says that they are too few. */
#define IOAM_DELAY_MAX 0x7fffffff
#define IOAM_DELAY_OVERFLOW 0x80000000

static __always_inline __u32 ioam_bits(__u32 word)
{
	word -= word >> 1 & 0x55555555;
	word = (word & 0x33333333) + (word >> 2 & 0x33333333);
	word = (word + (word >> 4)) & 0x0f0f0f0f;
	return word * 0x01010101 >> 24;
}

/* NodeLen: words of node data, without the snapshot. */
static __always_inline __u32 ioam_node_length(__u32 fields)
{
	return ioam_bits(fields & IOAM_FIELDS) + ioam_bits(fields & IOAM_WIDE);
}

/* Bytes of node data in front of a field. */
static __always_inline __u32 ioam_before(__u32 fields, __u32 bit)
{
	return ioam_node_length(fields & ~(IOAM_UNKNOWN >> bit)) * 4;
}

#endif

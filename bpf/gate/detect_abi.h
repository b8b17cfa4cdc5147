/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sources above a rate, as the programs find them and internal/gate reads them. */
#ifndef WAYMARK_GATE_DETECT_ABI_H
#define WAYMARK_GATE_DETECT_ABI_H

enum gate_detect_size {
	GATE_WATCHES = 8, /* detect rules of a rule set */
	GATE_SKETCH_ROWS = 4,
	GATE_SKETCH_SHIFT = 14, /* cells of a row, as a power of two */
	GATE_WINDOW_SHIFT = 30, /* ns of a window, likewise: 1.07 s */
	GATE_CANDIDATES = 64, /* reported per watch and window */
};

/* What a detect rule saw in a window. CPUs share it without locks: counts may be too low, never too high. */
struct gate_window {
	__u64 number;
	__u64 amount; /* packets, or bytes where the rule has bytes */
	__u64 packets;
	__u64 fresh; /* cells of the first row that were used: an estimate of the sources */
	__u64 reported;
	__u64 lost; /* candidates beyond the limit, or that found the ring full */
};

struct gate_watch {
	struct gate_window now;
	struct gate_window before;
};

/* A source above the rate of a rule, and the packet that made it so. */
struct gate_candidate {
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u64 src_high, src_low;
	__u64 dst_high, dst_low;
	__u64 amount; /* estimate for the source in this window */
	__u64 bound; /* by which the estimate may be too high, which was left out of account */
	__u64 total; /* of all sources */
	__u32 rule; /* id */
	__u32 length;
	__u16 sport, dport;
	__u16 head, sub;
	__u8 ipv6;
	__u8 ports;
	__u8 bits; /* of the source that is meant */
	__u8 zero[5];
};

#endif

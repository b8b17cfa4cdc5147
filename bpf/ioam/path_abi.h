/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the end of traces shares with user space: paths (path.h) and edge-to-edge options (edge.h).
 * Included by bpf/abi.h.
 */
#ifndef WAYMARK_IOAM_PATH_ABI_H
#define WAYMARK_IOAM_PATH_ABI_H

enum ioam_path_size {
	IOAM_HOPS = 16, /* of a path, at most */
	IOAM_OPTION_MAX = 256, /* bytes of an option with a trace */
	IOAM_PATH_KEYS = 98, /* of the hash: two for the namespace, and six for each hop */
};

/* Hops are counted from the newest on: hop 0 wrote its data last. */

/* A path in one epoch, as one CPU counted it. */
struct ioam_path_key {
	__u64 id;
	__u32 epoch;
	__u32 cpu;
};

struct ioam_path {
	__u64 packets;
	__u64 bytes;
	__u64 first; /* CLOCK_MONOTONIC, ns */
	__u64 last;
	__u32 hops;
	__u32 cell; /* the first of two for each hop in ioam_cells; IOAM_NO_CELLS: none were left */
	__s64 base[IOAM_HOPS]; /* subtracted from times of links before their bucket is chosen */
};

enum ioam_cells { IOAM_NO_CELLS = 0x7fffffff };

/* Differences from 0 to this many ns are those of clocks that agree; others are counted from where they begin. */
enum ioam_difference { IOAM_PLAUSIBLE = 500000000 };

/*
 * Times. Cell 2i of a path is the transit delay of hop i; cell 2i + 1 is the time from hop i + 1 to hop
 * i, without the transit delay of the former where that is known, and in the last cell the time from the
 * first node to the last.
 */
struct ioam_cell {
	__u64 count;
	__s64 sum; /* ns, as are min and max */
	__s64 min;
	__s64 max;
	__u32 bucket[DELAY_BUCKETS];
};

/* A path that has a place. */
struct ioam_known {
	__u32 reported; /* user space has got a trace of it */
	__u32 zero;
	__s64 base[IOAM_HOPS]; /* for the next epoch; written by user space, too */
};

enum ioam_report_kind {
	IOAM_REPORT_PATH = 0, /* the first trace of a path */
	IOAM_REPORT_RAW = 1, /* a trace, on request */
};

/* A trace as it arrived: the element of ioam_reports. */
struct ioam_report {
	__u64 id; /* of the path */
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u8 source[16];
	__u8 destination[16];
	__u32 iface;
	__u8 kind; /* enum ioam_report_kind */
	__u8 returned; /* a copy that came back to this node: see loopback.h */
	__u16 len; /* of the option */
	__u8 option[IOAM_OPTION_MAX];
};

/* Running counts, per CPU. */
struct ioam_path_totals {
	__u64 traces; /* that are in a path */
	__u64 reports_lost; /* of new paths, which are reported again later */
	__u64 raw_lost; /* traces on request, beyond the rate or the ring was full */
	__u64 delays_lost; /* traces whose times did not fit into ioam_cells */
	__u64 flows_lost; /* traces whose flow did not fit into ioam_flows */
	__u64 edges; /* edge-to-edge options that were read */
	__u64 edges_lost; /* that did not fit into ioam_edges, or found another CPU there for too long */
};

/*
 * Memory of the programs on one CPU, in parts as in scratch.h. What few cache lines hold is needed of most packets with
 * a trace: of the packet before, they are in no cache any more, as a rule.
 */
struct ioam_cpu {
	__u8 work[832];
	__u8 plan[384];
	__u8 walk[1600];
	/* Running totals, which the agent reads. */
	struct ioam_path_totals paths;
	__u64 options
		[IOAM_REASON_MAX +
		 1]; /* by enum ioam_reason; the last one: not in ioam_counts, which was full */
	__u8 prepared[12288] __attribute__((aligned(64)));
	__u8 completed[2048];
};

/* What edge-to-edge sequence numbers said when packets arrived. */
struct ioam_numbers {
	__u64 received;
	__s64 lost;
	__u64 reordered;
	__u64 duplicates;
};

/*
 * A flow whose packets have a trace or an edge-to-edge option, in one epoch, as one CPU counted it. All of it is written
 * by words of 64 bits: ioam_link().
 */
struct ioam_flow_key {
	FLOW_IDENTITY;
	__u8 proto;
	__u8 epoch;
	__u16 cpu;
};

struct ioam_flow {
	__u64 path; /* of the latest packet with a trace; 0: there was none */
	__u64 packets; /* with a trace */
	struct ioam_numbers numbers;
	__u64 count; /* of times from the first node to the last */
	__s64 sum; /* ns, as are min and max */
	__s64 min;
	__s64 max;
};

/* A sender of edge-to-edge options. */
struct ioam_edge_key {
	__u8 source[16];
	__u8 destination[16];
	__u16 space;
	__u16 netns;
	__u32 zero;
};

/* What its sequence numbers and times say: running counts. Written under `lock`. */
struct ioam_edge {
	__u64 highest; /* number that arrived */
	__u64 seen; /* bit i: highest - i arrived */
	__u64 next; /* the number that would follow those that are not believed yet */
	__u64 received;
	__s64 lost; /* may fall: a packet that arrives late was not lost */
	__u64 reordered;
	__u64 duplicates;
	__u64 discarded; /* numbers far from all others: of no use */
	__u64 restarts; /* the sender began again */
	__u32 lock;
	__u32 word; /* tells segments of one GSO burst from duplicates */
	__u8 span; /* bits of `seen` that count */
	__u8 following; /* numbers in a row that are not believed yet */
	__u8 burst; /* numbers until the sender is no longer known to send bursts */
	__u8 sequence; /* the option has a number */
	__u32 iface; /* where it was read last */
	__s64 base; /* subtracted from delays before their bucket is chosen */
	struct ioam_cell delay; /* from the sender's time to here */
};

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the PDM stages put together for one packet, and the stack is full
 * for. Nothing in it outlives the packet, but for counts and rate.
 */
#ifndef WAYMARK_PDM_WORK_H
#define WAYMARK_PDM_WORK_H

/* The policy that names a packet. */
struct pdm_verdict {
	__u64 until;
	__s32 policy; /* or POLICY_NONE, POLICY_HELD */
};

/* What a received packet carries and, below, what it reported. */
struct pdm_sample {
	struct pdm_option option;
	__u32 word; /* bytes 4 to 7 of the transport header */

	__u8 arrival;
	__u8 suspicion;
	__u8 has; /* as pdm_event.has */
	__u8 bare; /* see is_bare() */
	__u32 named; /* see packet_named() */
	__u64 server;
	__u64 network;
};

/* The header that holds an option, or the option alone, always PDM_HEADER bytes. */
struct pdm_cut {
	__u32 offset; /* from the frame's start; 0: nothing to remove */
	__u32 link; /* byte that names the header that goes */
	__u32 joined; /* header that stays, and shrinks; 0: all of it goes */
};

/* Events of the running second. */
struct pdm_rate {
	__u64 second;
	__u64 reported;
};

struct pdm_work {
	struct pdm_totals totals; /* running, as the rate; all else is of one packet */
	struct pdm_rate rate;
	struct mark_key key;
	struct mark_segment segment;
	struct pdm_option option;
	struct mark_place place;
	struct pdm_verdict verdict;
	struct pdm_sample sample;
	struct pdm_cut cut;
	struct mark_layout layout; /* where mark_walk() puts what it finds */
	struct policy_prefix prefix;
	struct pdm_state fresh; /* a new state */
	struct pdm_flow_delays no_delays; /* zeros, except what describes the flow */
};

_Static_assert(sizeof(struct pdm_work) <= sizeof(struct pdm_cpu) &&
		       !offsetof(struct pdm_work, totals) && !offsetof(struct pdm_cpu, totals),
	       "counts are where the agent reads them");

/* Written by the programs; the agent reads the counts. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pdm_cpu);
} pdm_cpus SEC(".maps");

/* Never NULL, but for the verifier. */
static __always_inline struct pdm_work *get_work(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&pdm_cpus, &zero);
}

/* Where get_work() has not been asked yet. */
#define PDM_STAT_ADD(field, n)                       \
	do {                                         \
		struct pdm_work *work_ = get_work(); \
		if (work_)                           \
			work_->totals.field += (n);  \
	} while (0)

#endif

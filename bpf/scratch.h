/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Working memory of the programs on one CPU, for what is too large for the stack.
 *
 * Input: the name of a part. Output: its memory, as the last packet left it; NULL, which only the verifier
 * believes. One map for all parts: Linux lets a program use 64, and a program with all features needs most of them.
 * It is shared by the programs of all hooks, which do not interrupt each other on a CPU.
 */
#ifndef WAYMARK_SCRATCH_H
#define WAYMARK_SCRATCH_H

#define SCRATCH_PART(name, bytes) __u8 name[bytes] __attribute__((aligned(8)))

/* Each part belongs to one header, which knows its type, and checks its size. */
struct scratch {
	SCRATCH_PART(spare_packet, 128); /* which PDM looks at, and which is for no batch */
	SCRATCH_PART(outer_packet, 128); /* while the inner one is read in its place */
	SCRATCH_PART(gate_seen, 96); /* of the packet */
	SCRATCH_PART(gate_matching, 56); /* where the rules are that match so far */
	SCRATCH_PART(gate_answer, 256);
	SCRATCH_PART(forward_view, 320);
	SCRATCH_PART(balance_view, 192);
	SCRATCH_PART(balance_outer, 48);
	SCRATCH_PART(balance_budget, 8); /* kept from packet to packet */
	SCRATCH_PART(balance_known, 384);
	SCRATCH_PART(port_piece, 512);
	SCRATCH_PART(mark_quote, 64);
	SCRATCH_PART(ioam_cut, 4224);
	SCRATCH_PART(ioam_edge, 1088);
	SCRATCH_PART(ioam_direct, 512);
	SCRATCH_PART(ioam_loopback, 320);
	SCRATCH_PART(ioam_growth, 2560);
};

/* Written and read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct scratch *scratch_all(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

/* A part of memory, as its type; NULL where there is no memory. */
#define PART_OF(memory, type, part)                                                    \
	({                                                                             \
		__typeof__(memory) all_ = (memory);                                    \
		type *part_ = NULL;                                                    \
		_Static_assert(sizeof(type) <= sizeof(all_->part), "bytes of " #part); \
		if (all_) {                                                            \
			part_ = (type *)all_->part;                                    \
			barrier_var(part_);                                            \
		}                                                                      \
		part_;                                                                 \
	})

#define SCRATCH(type, part) PART_OF(scratch_all(), type, part)

#endif

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts changes of neighbours, in all network namespaces: what the kernel has said of a way is asked for again afterwards.
 *
 * Input: the kernel has updated a neighbour, its timer has changed its state, or it is forgotten. Output:
 * forward_memory.neighbours. Loaded and attached by internal/forward; read by known.h.
 */
#include "prelude.h"
#include "../abi.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* That of forwarding: as a variable, its zeroes would be in the object. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct forward_memory);
} forward_memory SEC(".maps");

/* Of the tracepoints neigh_update_done, neigh_timer_handler and neigh_cleanup_and_release, whose arguments do not matter. */
SEC("raw_tracepoint")
int waymark_neighbour(void *ctx)
{
	struct forward_memory *memory;
	__u32 zero = 0;

	memory = bpf_map_lookup_elem(&forward_memory, &zero);
	if (memory)
		__sync_fetch_and_add(&memory->neighbours, 1);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Knobs and maps of the balancer, for internal/balance. */
#ifndef WAYMARK_BALANCE_CONFIG_H
#define WAYMARK_BALANCE_CONFIG_H

/* Buckets of the connection table less 1, a power of two less 1. Set before loading, like all here. */
const volatile __u32 cfg_balance_mask = 0;

/* A unit of balance_entry: 2 to the power of so many ticks. */
const volatile __u32 cfg_balance_shift = 8;

/* An established connection gives way when it was not seen for so many units. */
const volatile __u32 cfg_balance_idle = 3600;

/* Connections that a CPU may add to the table in a unit. */
const volatile __u32 cfg_balance_new = 1;

/* Shared with the agent. */
volatile struct balance_memory balance_memory SEC(".data.balance");

/* The devices of ports that can send, by flow_slot.iface. Written by the agent; the kernel removes devices that go. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, FORWARD_MOST);
	__type(key, __u32);
	__type(value, __u32);
} balance_out SEC(".maps");

/* Written by the agent, read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BALANCE_SERVICES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct balance_key);
	__type(value, struct balance_service);
} balance_services SEC(".maps");

/* By number of a service. The agent replaces a table as a whole: no packet meets half of one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BALANCE_SERVICES);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct balance_ring));
		});
} balance_rings SEC(".maps");

/* Written by the agent, read by the programs. A number is given to another backend when no connection has it any more. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_backend);
} balance_backends SEC(".maps");

/* QUIC: by what connection IDs have. Written by the agent, read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BALANCE_BACKENDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct balance_id);
	__type(value, __u32);
} balance_ids SEC(".maps");

/* Written by the agent, read by the programs. Empty: nobody. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 256);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct balance_source);
	__type(value, __u32);
} balance_sources SEC(".maps");

/*
 * Connections, in buckets by their hash, of all CPUs: which CPU gets a packet may change. What was not seen for a while
 * gives way; when nothing in a bucket may, packets of others go by the Maglev table. Written by the programs; the
 * agent removes what has ended.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_bucket);
} balance_connections SEC(".maps");

/* Interfaces by place, then services by number. Written by the programs, read by the agent, which clears what it gives to others. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_count);
} balance_counts SEC(".maps");

/* By number of a backend; likewise, but for the hop, which is of no use to the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_load);
} balance_loads SEC(".maps");

#endif

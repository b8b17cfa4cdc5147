/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Knobs and maps of forwarding, for internal/forward. */
#ifndef WAYMARK_FORWARD_CONFIG_H
#define WAYMARK_FORWARD_CONFIG_H

/* A neighbour is left to the kernel for one packet in 2 to the power of so many ticks. Set before loading. */
const volatile __u32 cfg_forward_shift = 10;

/* This kernel shows that its routes have changed; else nothing is remembered of them. Set before loading. */
const volatile bool cfg_forward_changes = false;

/* Shared with the agent. */
volatile struct forward_memory forward_memory SEC(".data.forward");

/* The devices of ports that can send, by flow_slot.iface. Written by the agent; the kernel removes devices that go. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, FORWARD_MOST);
	__type(key, __u32);
	__type(value, __u32);
} forward_out SEC(".maps");

/* Written by the agent, read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FORWARD_WAYS_MOST);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct forward_key);
	__type(value, struct forward_way);
} forward_ways SEC(".maps");

/* By place in forward_memory.ports. Written by the programs; read by the agent, which clears what it gives to another port. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FORWARD_PORTS);
	__type(key, __u32);
	__type(value, struct forward_count);
} forward_counts SEC(".maps");

#endif

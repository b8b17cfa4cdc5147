/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Knobs and maps of forwarding, for internal/forward. */
#ifndef WAYMARK_FORWARD_CONFIG_H
#define WAYMARK_FORWARD_CONFIG_H

/* A neighbour is left to the kernel for one packet in 2 to the power of so many ticks. Set before loading. */
const volatile __u32 cfg_forward_shift = 10;

/* Written by the agent, read by the programs. */
volatile struct forward_port forward_ports[FORWARD_PORTS] SEC(".data.forward");

/* The agent counts up while it follows changes, and clears the rest: since when programs have seen the number, in ticks. */
volatile struct {
	__u32 beat;
	__u32 seen;
	__u32 tick;
} forward_alive SEC(".data.forward_beat");

/*
 * By a hash of neighbour and period: the period, once one of its packets has gone to the kernel. With the
 * period in the hash, no two neighbours keep each other from it for longer than that.
 */
#define FORWARD_NEIGHBOUR_BITS 12
__u32 forward_fresh[1 << FORWARD_NEIGHBOUR_BITS] SEC(".data.forward_fresh");

/* The devices of ports that can send, by flow_slot.iface. Written by the agent; the kernel removes devices that go. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, FORWARD_MOST);
	__type(key, __u32);
	__type(value, __u32);
} forward_out SEC(".maps");

/* By place in forward_ports. Written by the programs; read by the agent, which clears what it gives to another port. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FORWARD_PORTS);
	__type(key, __u32);
	__type(value, struct forward_count);
} forward_counts SEC(".maps");

#endif

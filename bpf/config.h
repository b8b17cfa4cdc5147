/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Knobs, set by the loader before the programs are verified: what is off is
 * removed by the verifier and costs nothing. And the one word that user space
 * changes while programs run.
 */
#ifndef WAYMARK_CONFIG_H
#define WAYMARK_CONFIG_H

/* Number of the network namespace that this copy of the program serves. */
const volatile __u32 cfg_netns = 0;

/* A device without link header: the frame begins with the IP header. */
const volatile bool cfg_no_link_header = false;

/* Processors the flow table has partitions for, and sets in each of them. */
const volatile __u32 cfg_cpus = 1;
const volatile __u32 cfg_sets = 1;

/* Keys of the flow hash, random: nobody can choose colliding flows. */
const volatile __u64 cfg_seed[6] = { 1, 3, 5, 7, 9, 11 };

/* A packet is counted when a random 32-bit number is at most this. */
const volatile __u32 cfg_sample_below = 0xffffffff;

/* Bit per enum tunnel: count the inner flow. */
const volatile __u32 cfg_tunnels = 0;

/* Octets in the ring from which on a flow put there wakes user space. */
const volatile __u32 cfg_ring_wakeup = 1 << 20;

/* The half of the flow table that is being filled: 0 or 1. */
volatile __u32 epoch SEC(".data.control");

#endif

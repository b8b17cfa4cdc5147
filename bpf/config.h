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

/* Added to an interface's index, it gives flow_slot.iface. */
const volatile __u32 cfg_iface = 0;

const volatile enum feature cfg_features = 0;

/*
 * On a function that is not static and that only code of a feature calls: the
 * loader drops it where the feature is disabled (internal/datapath/feature.go).
 */
#define __feature(name) __attribute__((btf_decl_tag("feature " #name)))

/* A chunk of the flow table has so many sets, a power of two ... */
const volatile __u32 cfg_chunk_sets = 1;

/* ... and this is its logarithm. */
const volatile __u32 cfg_chunk_shift = 0;

/* FEATURE_SAMPLING: a packet is counted when a random 32-bit number is at most this. */
const volatile __u32 cfg_sample_below = 0xffffffff;

/* FEATURE_TUNNELS: bit per enum tunnel. */
const volatile __u32 cfg_tunnels = 0;

/* Where the kernel has what struct __sk_buff lacks, see frame_tc.h. */
const volatile struct skb_offsets cfg_skb = {};

/* So many ns after its first fragment a packet is given up (Linux: ipfrag_time). */
const volatile __u64 cfg_fragment_lifetime = 30000000000;

/* Other processors see the stores of one in their order, as on x86. */
const volatile bool cfg_stores_ordered = false;

/* What user space writes in front of a frame that it has a program try (dry.h): a number that nobody else knows. */
const volatile __u64 cfg_dry_key = 0;

/* Bytes in the ring from which on a flow put there wakes user space. */
const volatile __u32 cfg_ring_wakeup = 1 << 20;

/* The half of the maps where packets are counted: 0 or 1. */
volatile __u32 current_epoch SEC(".data.control");

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Constants of PDM, set by internal/inband/pdm before the programs are verified. */
#ifndef WAYMARK_PDM_CONFIG_H
#define WAYMARK_PDM_CONFIG_H

/* Every packet on the wire needs a number of its own: no GSO burst is marked. */
const volatile bool cfg_pdm_packets = false;

/* Forwarded packets may be marked, too. */
const volatile bool cfg_pdm_closed_domain = false;

/* The option is removed from received packets before the stack gets them. */
const volatile bool cfg_pdm_strip = false;

/* Marked packets reported one by one, each second and processor; 0: none. */
const volatile __u32 cfg_pdm_raw = 0;

/* New states each second, all processors together; 0: a part of the vacant ones. */
const volatile __u32 cfg_pdm_new_per_second = 0;

/* Packets of a flow that are marked in a second; 0: all. */
const volatile __u32 cfg_pdm_marks_per_second = 0;

/* A state without packets for so many ns is forgotten. */
const volatile __u64 cfg_pdm_lifetime = 0;

/* Entries of the index of places: NEAR_ENTRIES for each place. */
const volatile __u32 cfg_pdm_index = 1;

#endif

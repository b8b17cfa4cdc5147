/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Constants of IOAM, set by internal/inband/ioam before the programs are verified, and its control block. */
#ifndef WAYMARK_IOAM_CONFIG_H
#define WAYMARK_IOAM_CONFIG_H

/* enum ioam_time */
const volatile __u32 cfg_ioam_time = IOAM_TIME_POSIX;

/* Tells what this agent left in front of a packet from what others leave there. */
const volatile __u32 cfg_ioam_cookie = 0;

/* The receive time can be passed on to the egress (Linux 5.18, bpf_skb_set_tstamp). */
const volatile bool cfg_ioam_stamp = false;

/* Packets have receive times of the NIC, which the node uses. Needs Linux 5.18, as above. */
const volatile bool cfg_ioam_nic = false;

volatile struct ioam_control ioam SEC(".data.ioam");

#endif

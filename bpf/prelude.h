/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What every program includes from the kernel and from libbpf. */
#ifndef WAYMARK_PRELUDE_H
#define WAYMARK_PRELUDE_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* One read or write of a whole word, as other processors see it. */
#define WHOLE(x) (*(volatile typeof(x) *)&(x))

#endif

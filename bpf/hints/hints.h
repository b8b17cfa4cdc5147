/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hints: what the driver knows of a packet at XDP; or the same, computed.
 *
 * Input: struct xdp_md. Output: struct hints: receive time, hash and VLAN tag, each with its
 * source. Any XDP program may include this file: it needs linux/bpf.h, linux/if_ether.h,
 * linux/in.h, linux/ip.h, linux/ipv6.h, and bpf_helpers.h and bpf_endian.h of libbpf before it.
 *
 * Only a program that is bound to its device may call the driver (BPF_F_XDP_DEV_BOUND_ONLY, Linux
 * 6.3); the kernel refuses others even if they never do. So hints_read() takes whether the
 * program is bound. Where that is a constant when it is compiled, the calls are not in the unbound
 * program. Where it is a constant that is set before loading, as in Waymark, the loader drops the
 * functions with the tag "feature FEATURE_HINTS".
 *
 * "Offered" is not "present": a driver that has a hint may have none for this packet, and veth
 * returns time 0 with success. That is decided for each packet.
 */
#ifndef WAYMARK_HINTS_H
#define WAYMARK_HINTS_H

#include "hints/abi.h"
#include "hints/hash.h"

#ifndef __VMLINUX_H__
enum xdp_rss_hash_type {
	XDP_RSS_L4 = 1 << 3, /* of those that include/net/xdp.h has */
};
#endif

#ifndef __feature
#define __feature(name) __attribute__((btf_decl_tag("feature " #name)))
#endif

/* Linux 6.3, the last one 6.8. */
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *xdp, __u64 *time) __ksym __weak;
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *xdp, __u32 *hash,
				    enum xdp_rss_hash_type *type) __ksym __weak;
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *xdp, __be16 *proto,
					__u16 *tci) __ksym __weak;

/* Kinds that hints_read() is asked for. */
#define HINTS_TIME (1 << HINT_TIME)
#define HINTS_HASH (1 << HINT_HASH)
#define HINTS_VLAN (1 << HINT_VLAN)
#define HINTS_ALL (HINTS_TIME | HINTS_HASH | HINTS_VLAN)

struct hints {
	/* Of receipt, ns, never 0: computed, CLOCK_MONOTONIC; else by the clock of the device. */
	__u64 time;
	__u32 hash; /* 0 may be a hash */
	__u32 hash_type; /* of the driver: enum xdp_rss_hash_type */
	bool hash_l4; /* ports are in it: packets of a flow have one hash */
	__be16 vlan_proto;
	__u16 vlan_tci;
	enum hint_source source[HINTS];
};

/* The device is a network card, not a virtual interface. Set before loading. */
const volatile bool hints_hardware = false;

/* Where packets of the device are counted. Set before loading. */
const volatile __u32 hints_slot = 0;

/* Written by the programs, read by user space; running totals. Elements are slots. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct hints_count);
} hints_counts SEC(".maps");

/* What the driver has, 0; else there is none for this packet. */
__feature(FEATURE_HINTS) __noinline int hints_driver_time(struct xdp_md *xdp, __u64 *time)
{
	if (!time || !bpf_xdp_metadata_rx_timestamp || bpf_xdp_metadata_rx_timestamp(xdp, time))
		return -1;
	return *time ? 0 : -1;
}

__feature(FEATURE_HINTS) __noinline int hints_driver_hash(struct xdp_md *xdp, struct hints *h)
{
	enum xdp_rss_hash_type type = 0;
	__u32 hash = 0;

	if (!h || !bpf_xdp_metadata_rx_hash || bpf_xdp_metadata_rx_hash(xdp, &hash, &type))
		return -1;
	h->hash = hash;
	h->hash_type = type;
	h->hash_l4 = type & XDP_RSS_L4;
	return type ? 0 : -1; /* of nothing: neither addresses nor ports */
}

__feature(FEATURE_HINTS) __noinline int hints_driver_vlan(struct xdp_md *xdp, struct hints *h)
{
	__be16 proto = 0;
	__u16 tci = 0;

	if (!h || !bpf_xdp_metadata_rx_vlan_tag || bpf_xdp_metadata_rx_vlan_tag(xdp, &proto, &tci))
		return -1;
	h->vlan_proto = proto;
	h->vlan_tci = tci;
	return 0;
}

static __always_inline enum hint_source hints_source(void)
{
	return hints_hardware ? HINT_HARDWARE : HINT_DRIVER;
}

/*
 * Reads what is wanted, bits of HINTS_ALL, which should be a constant. What the driver has not is
 * computed.
 */
static __always_inline void hints_read(struct xdp_md *xdp, struct hints *h, __u32 want, bool bound)
{
	*h = (struct hints){};
	if (want & HINTS_TIME) {
		h->source[HINT_TIME] = hints_source();
		if (!bound || hints_driver_time(xdp, &h->time)) {
			h->time = bpf_ktime_get_ns();
			h->source[HINT_TIME] = HINT_COMPUTED;
		}
	}
	if (want & HINTS_HASH) {
		h->source[HINT_HASH] = hints_source();
		if (!bound || hints_driver_hash(xdp, h)) {
			h->hash_type = 0;
			h->hash_l4 = hints_hash(xdp, &h->hash);
			h->source[HINT_HASH] = HINT_COMPUTED;
		}
	}
	if (want & HINTS_VLAN) {
		h->source[HINT_VLAN] = hints_source();
		if (!bound || hints_driver_vlan(xdp, h))
			h->source[HINT_VLAN] = hints_tag(xdp, &h->vlan_proto, &h->vlan_tci)
						       ? HINT_COMPUTED
						       : HINT_ABSENT;
	}
}

/* Counts a packet of a program that is bound, by what the driver had of what was wanted. */
static __always_inline void hints_count(const struct hints *h, __u32 want)
{
	__u32 slot = hints_slot;
	struct hints_count *c = bpf_map_lookup_elem(&hints_counts, &slot);

	if (!c)
		return;
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < HINTS; i++) {
		if (!(want & 1 << i))
			continue;
		if (h->source[i] == HINT_HARDWARE || h->source[i] == HINT_DRIVER)
			c->present[i]++;
		else
			c->absent[i]++;
	}
}

#endif

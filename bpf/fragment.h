/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Ports for later fragments, which don't carry any.
 *
 * Input: a parsed fragment. Output: a first one is remembered; a later one gets the
 * ports and protocol of its first, where that was seen, else there is a reason, which counts it.
 */
#ifndef WAYMARK_FRAGMENT_H
#define WAYMARK_FRAGMENT_H

/*
 * Written and read by the programs. Fragments of one packet follow each other
 * within milliseconds, so a few thousand are plenty; the least recently used
 * leaves, and its later fragments count as unmatched. So do those that come when
 * nobody would put the packet together any more: its id may stand for another.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct fragment_key);
	__type(value, struct fragment_ports);
} fragments SEC(".maps");

__noinline int fragment_ports(struct packet *p, bool dry)
{
	struct fragment_key key = {};
	struct fragment_ports ports = {}, *seen;
	__u64 now;

	if (!p)
		return PARSE_OK;
	__builtin_memcpy(key.saddr, p->id.saddr, 16);
	__builtin_memcpy(key.daddr, p->id.daddr, 16);
	key.iface = p->id.iface;
	key.id = p->frag_id;
	key.meta = p->id.meta & ~(7 << META_L2_SHIFT); /* VLAN 0 is none */
	key.vni = p->vni;
	key.proto = p->frag_proto;

	now = bpf_ktime_get_coarse_ns();
	if (p->fragment == FRAGMENT_FIRST) {
		if (dry)
			return PARSE_OK;
		ports.time = now;
		ports.sport = p->id.sport;
		ports.dport = p->id.dport;
		ports.proto = p->id.proto;
		return bpf_map_update_elem(&fragments, &key, &ports, BPF_ANY) ? REASON_FRAGMENT_LOST
									      : PARSE_OK;
	}
	seen = bpf_map_lookup_elem(&fragments, &key);
	if (!seen || (__s64)(now - seen->time) > (__s64)cfg_fragment_lifetime)
		return dry ? PARSE_OK : REASON_FRAGMENT_UNMATCHED;
	p->id.sport = seen->sport;
	p->id.dport = seen->dport;
	p->id.proto = seen->proto;
	return PARSE_OK;
}

#endif

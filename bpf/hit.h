/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What happens to most packets: a common one, like others of its flow, which is
 * at the first place of the table that is looked at.
 *
 * In: the packet. Out: true, and it is counted; or false, and nothing was done.
 *
 * The headers are compared with the slot where they are: what is neither written
 * to the stack nor read back from there leaves the processor room to work on the
 * next packet while it waits for the slot, the one line that is not in its cache.
 */
#ifndef WAYMARK_HIT_H
#define WAYMARK_HIT_H

/* The first place of a flow as words, or NULL. */
static __always_inline __u64 *hit_slot(__u64 hash)
{
	struct flow_set *set;
	__u32 cpu, index;

	/* Ready before the call, for which all that went into it would be saved. */
	asm volatile("" : "+r"(hash));
	cpu = bpf_get_smp_processor_id();
	if (cpu >= cfg_cpus)
		return NULL;
	index = set_of(filling, cpu, hash >> 32);
	set = bpf_map_lookup_elem(&flows, &index);
	return set ? (__u64 *)&set->way[(__u32)hash >> 30] : NULL;
}

/* One jump each: less waits for the slot than if differences were gathered. */
#define HIT_IF(condition)             \
	do {                          \
		if (!(condition))     \
			return false; \
		barrier();            \
	} while (0)

/* All but the addresses. */
static __always_inline bool hit_count(__u64 *words, const struct common *c)
{
	struct flow_slot *slot = (struct flow_slot *)words;
	__u64 counts, meta = words[WORD_META];
	__u32 flags = c->meta >> 56;

	HIT_IF(words[WORD_PORTS] == c->ports);
	/*
	 * A free slot has 0 there, and no packet. TCP flags may be among those of
	 * other packets of the flow.
	 */
	if (meta != c->meta && ((meta ^ c->meta) << 8 | (flags & ~(__u32)(meta >> 56))))
		return false;
	/* There are fewer packets than octets. */
	counts = words[WORD_COUNTS] + ((__u64)c->total << 32 | 1);
	HIT_IF((__s64)counts >= 0);
	words[WORD_COUNTS] = counts;
	slot->payload += c->total - c->ip_len - c->l4_len;
	slot->last = bpf_jiffies64();
	/* Not to be shared with code that looks alike, and goes on with slot. */
	asm volatile("" : : "i"(1));
	return true;
}

/* Where there is no more to count than a slot can hold, and no handshake. */
static __always_inline bool hit_is_plain(struct __sk_buff *skb, const struct common *c)
{
	if (c->total != skb->len - sizeof(struct ethhdr) || c->total < c->ip_len + c->l4_len)
		return false;
	return !(c->tcp_flags_high | is_congested(c->tos) | (c->meta >> 56 & TCP_SYN));
}

static __always_inline bool hit_ipv4(struct __sk_buff *skb, __u32 direction, const struct iphdr *ip)
{
	struct common c;
	__u64 *slot;

	if (!common_ipv4(skb, direction, ip, &c) || !hit_is_plain(skb, &c))
		return false;
	slot = hit_slot(hash_rest(hash_ipv4(ip), c.ports, c.meta));
	if (!slot)
		return false;
	HIT_IF(slot[WORD_SADDR + 1] == mapped(ip->saddr));
	HIT_IF(slot[WORD_DADDR + 1] == mapped(ip->daddr));
	HIT_IF(!slot[WORD_SADDR]);
	HIT_IF(!slot[WORD_DADDR]);
	return hit_count(slot, &c);
}

static __always_inline bool hit_ipv6(struct __sk_buff *skb, __u32 direction,
				     const struct ipv6hdr *ip)
{
	const __u64 *addr = (const void *)&ip->saddr;
	struct common c;
	__u64 *slot;

	if (!common_ipv6(skb, direction, ip, false, &c) || !hit_is_plain(skb, &c))
		return false;
	slot = hit_slot(hash_rest(hash_ipv6(addr), c.ports, c.meta));
	if (!slot)
		return false;
	HIT_IF(slot[WORD_SADDR] == addr[0]);
	HIT_IF(slot[WORD_SADDR + 1] == addr[1]);
	HIT_IF(slot[WORD_DADDR] == addr[2]);
	HIT_IF(slot[WORD_DADDR + 1] == addr[3]);
	return hit_count(slot, &c);
}

static __always_inline bool flow_hit(struct __sk_buff *skb, __u32 direction)
{
	__be16 proto;
	void *ip;

	if (cfg_all_stages)
		return false;
	ip = common_link(skb, &proto);
	if (!ip)
		return false;
	if (proto == bpf_htons(ETH_P_IP))
		return hit_ipv4(skb, direction, ip);
	return proto == bpf_htons(ETH_P_IPV6) && hit_ipv6(skb, direction, ip);
}

#endif

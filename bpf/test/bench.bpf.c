// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Programs that are run by BPF_PROG_TEST_RUN and never attached: the probe and
 * its stages over packets of many flows, what they are compared with, and ways
 * to fill maps that real traffic fills rarely.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "mark/clock.h"
#include "probe.h"
#include "test/hash_rodata.h"
#include "test/vary.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline bool vary_skb(struct __sk_buff *skb)
{
	return vary((void *)(long)skb->data, (void *)(long)skb->data_end);
}

/* What every other program is measured over. */
SEC("tc")
int bench_empty(struct __sk_buff *skb)
{
	vary_skb(skb);
	return TC_ACT_UNSPEC;
}

/* The first stage alone. */
SEC("tc")
int bench_parse(struct __sk_buff *skb)
{
	struct packet p;

	if (!vary_skb(skb))
		return TC_ACT_SHOT;
	if (!parse_fast(skb, DIRECTION_INGRESS, 0, &p))
		return TC_ACT_SHOT;
	p.hash = hash_flow(&p.id);
	/* What the next stage would read: none of it may be optimised away. */
	asm volatile("" : : "r"(&p) : "memory");
	return TC_ACT_UNSPEC;
}

/* The same with keys of the hash in .rodata. */
SEC("tc")
int bench_rodata(struct __sk_buff *skb)
{
	struct packet p;

	if (!vary_skb(skb))
		return TC_ACT_SHOT;
	if (!parse_fast(skb, DIRECTION_INGRESS, 0, &p))
		return TC_ACT_SHOT;
	p.hash = rodata_hash_flow(&p.id);
	asm volatile("" : : "r"(&p) : "memory");
	return TC_ACT_UNSPEC;
}

SEC("tc")
int bench_ingress(struct __sk_buff *skb)
{
	if (!vary_skb(skb))
		return TC_ACT_SHOT;
	return probe(skb, DIRECTION_INGRESS);
}

/*
 * The reference: what flow probes with a hash map do. Same packets, same
 * parser; a key of 48 bytes, counters by atomic additions, the time of first
 * and last packet by the nanosecond clock.
 */
struct reference_key {
	FLOW_IDENTITY;
	__u32 proto;
};

struct reference_flow {
	__u64 packets;
	__u64 bytes;
	__u64 first;
	__u64 last;
	__u64 tcp_flags;
};

#define REFERENCE_MAP(name, kind)                     \
	struct {                                      \
		__uint(type, kind);                   \
		__uint(max_entries, 1);               \
		__type(key, struct reference_key);    \
		__type(value, struct reference_flow); \
	} name SEC(".maps")

REFERENCE_MAP(reference_hash, BPF_MAP_TYPE_HASH);
REFERENCE_MAP(reference_lru, BPF_MAP_TYPE_LRU_HASH);
REFERENCE_MAP(reference_percpu, BPF_MAP_TYPE_PERCPU_HASH);

static __always_inline int reference(struct __sk_buff *skb, void *map, bool shared)
{
	struct reference_flow *flow, fresh = {};
	struct reference_key key = {};
	struct packet p;
	__u64 now;

	if (!vary_skb(skb))
		return TC_ACT_SHOT;
	if (!parse_fast(skb, DIRECTION_INGRESS, 0, &p))
		return TC_ACT_SHOT;
	__builtin_memcpy(key.saddr, p.id.saddr, 16);
	__builtin_memcpy(key.daddr, p.id.daddr, 16);
	key.sport = p.id.sport;
	key.dport = p.id.dport;
	key.iface = p.id.iface;
	key.meta = p.id.meta;
	key.proto = p.id.proto;
	now = bpf_ktime_get_ns();
	flow = bpf_map_lookup_elem(map, &key);
	if (flow) {
		if (shared) {
			__sync_fetch_and_add(&flow->packets, 1);
			__sync_fetch_and_add(&flow->bytes, p.id.bytes);
		} else {
			flow->packets++;
			flow->bytes += p.id.bytes;
		}
		flow->last = now;
		flow->tcp_flags |= p.id.tcp_flags;
		return TC_ACT_UNSPEC;
	}
	fresh.packets = 1;
	fresh.bytes = p.id.bytes;
	fresh.first = now;
	fresh.last = now;
	fresh.tcp_flags = p.id.tcp_flags;
	if (bpf_map_update_elem(map, &key, &fresh, BPF_NOEXIST))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int bench_hash(struct __sk_buff *skb)
{
	return reference(skb, &reference_hash, true);
}

SEC("tc")
int bench_lru(struct __sk_buff *skb)
{
	return reference(skb, &reference_lru, true);
}

SEC("tc")
int bench_percpu(struct __sk_buff *skb)
{
	return reference(skb, &reference_percpu, false);
}

static __always_inline __u32 next_number(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return next_flow(&senders.cpu[cpu < SENDERS_MAX ? cpu : 0]);
}

/* Every packet has a reason, on an interface of its own. */
SEC("tc")
int fill_counts(struct __sk_buff *skb)
{
	count_many(next_number() % cfg_vary.flows, COUNT_WHAT(DIRECTION_INGRESS, REASON_ARP), 1, 1,
		   skb->len);
	return TC_ACT_UNSPEC;
}

/* Every packet finds the ring full, on an interface of its own. */
SEC("tc")
int fill_unattributed(struct __sk_buff *skb)
{
	struct flow_slot slot = { .proto = IPPROTO_UDP, .packets = 1, .bytes = 100, .payload = 72 };
	struct flow_extra extra = {};

	slot.iface = next_number() % cfg_vary.flows;
	if (add_unattributed(&slot, &extra))
		count_lost(&slot, &extra);
	return TC_ACT_UNSPEC;
}

/* What spin() has done; user space sets both back. */
struct {
	__u32 began;
	__u32 ended;
} volatile spin_state;

static long spin_step(__u32 i, void *nothing)
{
	return 0;
}

/* A program that takes its time, for those who must wait until it has ended. */
SEC("tc")
int spin(struct __sk_buff *skb)
{
	spin_state.began = 1;
	for (int i = 0; i < 8; i++)
		bpf_loop(1 << 23, spin_step, NULL, 0);
	spin_state.ended = 1;
	return TC_ACT_UNSPEC;
}

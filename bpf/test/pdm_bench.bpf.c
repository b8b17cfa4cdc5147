// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What marking and reading cost. Programs that are run by BPF_PROG_TEST_RUN,
 * again and again on one packet, so each puts the packet back or makes it the
 * next one; what that takes is measured, too, to be subtracted.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "mark/clock.h"
#include "probe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Flows that the packets belong to, one after the other. */
const volatile __u32 bench_flows = 1;

__u32 bench_next;

#define AT_NEXT (sizeof(struct ethhdr) + offsetof(struct ipv6hdr, nexthdr))
#define AT_LEN (sizeof(struct ethhdr) + offsetof(struct ipv6hdr, payload_len))
#define AT_ADDR (sizeof(struct ethhdr) + offsetof(struct ipv6hdr, saddr))
#define AT_OPTION (sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + 2)

/* The low half of the source address is the number of a flow. */
static __always_inline bool vary_flow(struct __sk_buff *skb, __u32 at)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (data + AT_ADDR + 32 > end)
		return false;
	if (bench_flows > 1)
		*(__u64 *)(data + at + 8) = bench_next * 2654435761ULL % bench_flows;
	bench_next++;
	return true;
}

/* Takes the header away again that pdm_mark() put there, if it did. */
static __always_inline bool undo(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (data + sizeof(struct ethhdr) + sizeof(struct ipv6hdr) > end)
		return false;
	if (*(__u8 *)(data + AT_NEXT) != IPPROTO_DSTOPTS)
		return true;
	if (bpf_skb_adjust_room(skb, -PDM_HEADER, BPF_ADJ_ROOM_NET, SPACE_SHRINK))
		return false;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + sizeof(struct ethhdr) + sizeof(struct ipv6hdr) > end)
		return false;
	*(__u8 *)(data + AT_NEXT) = IPPROTO_UDP;
	*(__be16 *)(data + AT_LEN) =
		bpf_htons(skb->len - sizeof(struct ethhdr) - sizeof(struct ipv6hdr));
	return true;
}

SEC("tc")
int bench_empty(struct __sk_buff *skb)
{
	return vary_flow(skb, AT_ADDR) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Enlarged and reduced again: twice the cost of undo(). */
SEC("tc")
int bench_resize(struct __sk_buff *skb)
{
	void *data, *end;

	if (!vary_flow(skb, AT_ADDR) ||
	    bpf_skb_adjust_room(skb, PDM_HEADER, BPF_ADJ_ROOM_NET, SPACE_SHRINK))
		return TC_ACT_SHOT;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + sizeof(struct ethhdr) + sizeof(struct ipv6hdr) > end)
		return TC_ACT_SHOT;
	*(__u8 *)(data + AT_NEXT) = IPPROTO_DSTOPTS;
	return undo(skb) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* A packet as it is before the stages of PDM. */
static __always_inline bool parse_marked(struct __sk_buff *skb, __u32 direction, struct packet *p)
{
	if (!parse_fast(skb, direction, FEATURE_PDM, p))
		return false;
	p->hash = hash_flow(&p->id);
	return true;
}

/* Lets the packet's destination be known to take marks, from now on. */
SEC("tc")
int bench_known(struct __sk_buff *skb)
{
	struct pdm_work *work = get_work();
	struct mark_path *path;
	struct packet p;

	if (!work || !parse_marked(skb, DIRECTION_EGRESS, &p))
		return TC_ACT_SHOT;
	key_of(&p, false, MARK_PDM, &work->key);
	path = path_make(&work->key, true);
	if (!path)
		return TC_ACT_SHOT;
	path->passed = ~0ULL >> 1;
	return TC_ACT_UNSPEC;
}

/* Parse and mark. */
SEC("tc")
int bench_mark(struct __sk_buff *skb)
{
	struct packet p;

	if (!vary_flow(skb, AT_ADDR) || !parse_marked(skb, DIRECTION_EGRESS, &p))
		return TC_ACT_SHOT;
	pdm_mark(skb, &p);
	return undo(skb) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Parse and leave: the flow is not named by policy. */
SEC("tc")
int bench_pass(struct __sk_buff *skb)
{
	struct packet p;

	if (!vary_flow(skb, AT_ADDR) || !parse_marked(skb, DIRECTION_EGRESS, &p))
		return TC_ACT_SHOT;
	pdm_mark(skb, &p);
	return TC_ACT_UNSPEC;
}

/* The packet of a peer, with the number that is the next one in its flow. */
static __always_inline bool next_number(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 *psn = data + AT_OPTION + 4;

	if (!vary_flow(skb, AT_ADDR + 16) || (void *)(psn + 1) > end)
		return false;
	*psn = bpf_htons(bench_next / bench_flows);
	return true;
}

SEC("tc")
int bench_number(struct __sk_buff *skb)
{
	return next_number(skb) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Parse and read a packet that comes in order. */
SEC("tc")
int bench_read(struct __sk_buff *skb)
{
	struct packet p;

	if (!next_number(skb) || !parse_marked(skb, DIRECTION_INGRESS, &p))
		return TC_ACT_SHOT;
	return pdm_read(skb, &p) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Makes the packet an answer to what was sent last, and that unanswered. */
static __always_inline bool make_answer(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 *psnlr = data + AT_OPTION + 6;
	struct pdm_work *work = get_work();
	struct pdm_state *s;
	struct packet p;
	bool far;

	if ((void *)(psnlr + 1) > end || !work || !parse_marked(skb, DIRECTION_INGRESS, &p))
		return false;
	key_of(&p, true, MARK_PDM, &work->key);
	s = pdm_find(&work->key, &far);
	if (!s)
		return false;
	s->answered = 0;
	s->acknowledged = 0;
	*psnlr = bpf_htons(s->tx);
	if (s->span) /* the counter of packets is for all processors, a flow is not */
		psnlr[-1] = bpf_htons(s->highest + 1);
	return true;
}

SEC("tc")
int bench_make_answer(struct __sk_buff *skb)
{
	return next_number(skb) && make_answer(skb) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Likewise for a packet that reports delays. */
SEC("tc")
int bench_answer(struct __sk_buff *skb)
{
	struct packet p;

	if (!next_number(skb) || !make_answer(skb) || !parse_marked(skb, DIRECTION_INGRESS, &p))
		return TC_ACT_SHOT;
	return pdm_read(skb, &p) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Likewise, with the number after that in the packet: the sender's own. */
SEC("tc")
int test_answer(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 *psn = data + AT_OPTION + 4;
	struct packet p;

	if ((void *)(psn + 1) > end)
		return TC_ACT_SHOT;
	*psn = bpf_htons(bpf_ntohs(*psn) + 1);
	if (!make_answer(skb) || !parse_marked(skb, DIRECTION_INGRESS, &p))
		return TC_ACT_SHOT;
	return pdm_read(skb, &p) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* How often each number was taken. */
__u32 taken[1 << PSN_BITS] SEC(".data.taken");

/* Marks, and notes the number that the packet got. */
SEC("tc")
int test_taken(struct __sk_buff *skb)
{
	void *data, *end;
	__be16 *psn;

	if (probe(skb, DIRECTION_EGRESS) != TC_ACT_UNSPEC)
		return TC_ACT_SHOT;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	psn = data + AT_OPTION + 4;
	if ((void *)(psn + 1) > end || *(__u8 *)(data + AT_NEXT) != IPPROTO_DSTOPTS)
		return TC_ACT_SHOT;
	__sync_fetch_and_add(&taken[bpf_ntohs(*psn)], 1);
	return undo(skb) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* The whole probe, on a packet that is put back. */
SEC("tc")
int bench_egress(struct __sk_buff *skb)
{
	if (!vary_flow(skb, AT_ADDR))
		return TC_ACT_SHOT;
	probe(skb, DIRECTION_EGRESS);
	return undo(skb) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

SEC("tc")
int bench_ingress(struct __sk_buff *skb)
{
	return next_number(skb) ? probe(skb, DIRECTION_INGRESS) : TC_ACT_SHOT;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Flows on paths: which path the traces of a flow show, how long its packets took from end to end, and what
 * their edge-to-edge numbers say.
 *
 * Input: a parsed packet at tc ingress, of which path.h has counted a trace or edge.h an option. Output: one
 * more packet of its flow on that path. Called by probe.h.
 */
#ifndef WAYMARK_IOAM_PATH_FLOW_H
#define WAYMARK_IOAM_PATH_FLOW_H

/*
 * Flows of packets that have a trace or an edge-to-edge option, by CPU and epoch. Written by the programs; read and deleted by the
 * agent when no program uses the epoch. Full: flows_lost.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ioam_flow_key);
	__type(value, struct ioam_flow);
} ioam_flows SEC(".maps");

static __noinline int ioam_count_flow(const struct packet *p, const struct ioam_work *w)
{
	struct ioam_flow_key key __attribute__((aligned(8))) = {}; /* of 64-bit words: as below */
	struct ioam_flow *f, first = {};
	__u64 *word = (__u64 *)&key;

	/* By words, as the packet was written: see struct packet. */
	word[0] = p->word[0];
	word[1] = p->word[1];
	word[2] = p->word[2];
	word[3] = p->word[3];
	word[4] = p->word[4];
	word[5] = (p->word[5] & 0xffffffffff) | (__u64)(current_epoch & 1) << 40 |
		  (__u64)bpf_get_smp_processor_id() << 48;
	f = find_or_make(&ioam_flows, &key, &first);
	if (!f) {
		IOAM_PATH_STAT(flows_lost);
		return 0;
	}
	if (w->reported & IOAM_TRACED) {
		f->path = w->path;
		f->packets += p->gso_packets + 1;
	}
	if (w->reported & IOAM_NUMBERED) {
		f->numbers.received += w->numbers.received;
		f->numbers.lost += w->numbers.lost;
		f->numbers.reordered += w->numbers.reordered;
		f->numbers.duplicates += w->numbers.duplicates;
	}
	if (w->whole == IOAM_NO_TIME)
		return 0;
	if (!f->count || w->whole < f->min)
		f->min = w->whole;
	if (!f->count || w->whole > f->max)
		f->max = w->whole;
	f->count++;
	f->sum += w->whole;
	return 0;
}

/* Links the flow of a parsed packet to what its options reported. */
static __always_inline void ioam_link_flow(const struct packet *p)
{
	struct ioam_work *w = IOAM_CPU(struct ioam_work, work);

	if (w && w->reported)
		ioam_count_flow(p, w);
}

#endif

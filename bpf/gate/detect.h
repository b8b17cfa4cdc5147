/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sources that send more than a rate, found by a count-min sketch per rule: memory that does not grow, whatever
 * sources packets claim. A cell belongs to the window that its upper half names, so nothing has to be cleared.
 *
 * Input: a packet that a detect rule matches. Output: a candidate in a ring, when its source passes the rate by more than
 * the error of the sketch; at most once per window. Called by decide.h.
 */
#ifndef WAYMARK_GATE_DETECT_H
#define WAYMARK_GATE_DETECT_H

#define GATE_SKETCH_CELLS (1U << GATE_SKETCH_SHIFT)

/* Upper half: number of the window; lower half: amount. Written by the programs alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} gate_sketch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GATE_WATCHES);
	__type(key, __u32);
	__type(value, struct gate_watch);
} gate_watches SEC(".maps");

/* When it is full, candidates are counted as lost: a source that goes on is a candidate of the next window. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} gate_candidates SEC(".maps");

/* The first packet of a window keeps the counts of the one before. */
static __always_inline void gate_turn_window(struct gate_watch *w, __u64 number)
{
	__u64 was = WHOLE(w->now.number);

	if (was == number || __sync_val_compare_and_swap(&w->now.number, was, number) != was)
		return;
	w->before = w->now;
	w->before.number = was;
	w->now.amount = w->now.packets = w->now.fresh = w->now.reported = w->now.lost = 0;
}

/* Adds to the cells of a source. Output: the least of them, an estimate that is not too low. */
static __always_inline __u64 gate_sketch_add(struct gate_watch *w, __u32 watch, __u64 hash,
					     __u64 step, __u32 window, __u64 amount)
{
	__u64 least = 0xffffffff, *cell, value;
	__u32 n;

#pragma clang loop unroll(full)
	for (__u32 row = 0; row < GATE_SKETCH_ROWS; row++) {
		n = (hash + row * step) >> (64 - GATE_SKETCH_SHIFT);
		n += (watch * GATE_SKETCH_ROWS + row) * GATE_SKETCH_CELLS;
		cell = bpf_map_lookup_elem(&gate_sketch, &n);
		if (!cell) /* unreachable; satisfies the verifier */
			return 0;
		value = *cell;
		if (value >> 32 != window) {
			value = (__u64)window << 32;
			w->now.fresh += !row;
		}
		value += (__u32)value + amount <= 0xffffffff ? amount : 0;
		*cell = value;
		least = (__u32)value < least ? (__u32)value : least;
	}
	return least;
}

static __always_inline void gate_report(const struct gate_rule *rule, const struct gate_facts *f,
					struct gate_watch *w, __u64 amount, __u64 bound)
{
	struct gate_candidate *c;

	if (w->now.reported >= GATE_CANDIDATES ||
	    !(c = bpf_ringbuf_reserve(&gate_candidates, sizeof(*c), 0))) {
		w->now.lost++;
		return;
	}
	w->now.reported++;
	__builtin_memset(c, 0, sizeof(*c));
	c->time = bpf_ktime_get_ns();
	c->src_high = f->src_high;
	c->src_low = f->src_low;
	c->dst_high = f->dst_high;
	c->dst_low = f->dst_low;
	c->amount = amount;
	c->bound = bound;
	c->total = w->now.amount;
	c->rule = rule->id;
	c->length = f->length;
	c->sport = f->sport;
	c->dport = f->dport;
	c->head = f->head;
	c->sub = f->sub;
	c->ipv6 = f->ipv6;
	c->ports = f->ports;
	c->bits = f->ipv6 ? rule->bits6 : rule->bits4;
	bpf_ringbuf_submit(c, 0);
}

/* Counts a packet for its source. A detect rule has its threshold per window in `full`, its watch in `cost`. Verified alone. */
__feature(FEATURE_GATE) __noinline int gate_detect(__u32 number, const struct gate_facts *f)
{
	const struct gate_rule *rule = bpf_map_lookup_elem(&gate_rules, &number);
	__u64 high, low, kind, hash, step, amount, least, bound, window;
	__u32 watch, bits;
	struct gate_watch *w;

	if (!rule || !f || !f->header)
		return 0;
	watch = rule->cost;
	w = bpf_map_lookup_elem(&gate_watches, &watch);
	if (!w)
		return 0;
	window = bpf_ktime_get_coarse_ns() >> GATE_WINDOW_SHIFT;
	gate_turn_window(w, window);
	amount = rule->bytes ? f->bytes : f->packets;
	w->now.packets += f->packets;
	w->now.amount += amount;
	bits = f->ipv6 ? rule->bits6 : rule->bits4;
	high = gate_upper(f->src_high, bits);
	low = bits > 64 ? gate_upper(f->src_low, bits - 64) : 0;
	kind = (__u64)watch << 32 | f->ipv6;
	hash = mix(gate_nh(high, 0) + gate_nh(low, 1) + gate_nh(kind, 2));
	step = mix(gate_nh(high, 3) + gate_nh(low, 4) + gate_nh(kind, 5)) | 1;
	least = gate_sketch_add(w, watch, hash, step, window, amount);
	bound = w->now.amount * 3 >> GATE_SKETCH_SHIFT; /* e * amount / cells, and a little more */
	if (least >= rule->full + bound && least - amount < rule->full + bound)
		gate_report(rule, f, w, least, bound);
	return 0;
}

#endif

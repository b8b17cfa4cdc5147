/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tables of the gate: from what a packet is to the rules whose condition about it holds.
 *
 * Input: an address or a number. Output: a row of gate_rows. Called by decide.h.
 */
#ifndef WAYMARK_GATE_FIND_H
#define WAYMARK_GATE_FIND_H

#define GATE_REF_NUMBER ((1U << GATE_REF_SHIFT) - 1)

static __always_inline __u32 gate_find_leaf(const struct gate_leaf *l, __u64 high)
{
	if (high < l->key[2])
		return high < l->key[0] ? l->row[0] : high < l->key[1] ? l->row[1] : l->row[2];
	if (high < l->key[3])
		return l->row[3];
	return high < l->key[4] ? l->row[4] : l->row[5];
}

static __always_inline bool gate_is_below(__u64 high, __u64 low, __u64 key_high, __u64 key_low)
{
	return high < key_high || (high == key_high && low < key_low);
}

static __always_inline __u32 gate_find_wide(const struct gate_wide *w, __u64 high, __u64 low)
{
	if (gate_is_below(high, low, w->high[0], w->low[0]))
		return w->row[0];
	return gate_is_below(high, low, w->high[1], w->low[1]) ? w->row[1] : w->row[2];
}

/* Goes on from a reference by an address. Output: whether it is a row. */
static __always_inline bool gate_step(__u32 *ref, __u64 high, __u64 low)
{
	__u32 n = *ref & GATE_REF_NUMBER, kind = *ref >> GATE_REF_SHIFT, child;
	const struct gate_line *line;
	__u64 head, tail, word;

	if (kind == GATE_REF_ROW)
		return true;
	line = bpf_map_lookup_elem(&gate_lines, &n);
	if (!line) {
		*ref = 0;
		return true;
	}
	if (kind == GATE_REF_LEAF) {
		*ref = gate_find_leaf(&line->leaf, high);
		return true;
	}
	if (kind == GATE_REF_WIDE) {
		*ref = gate_find_wide(&line->wide, high, low);
		return true;
	}
	head = high & line->node.mask_high;
	tail = low & line->node.mask_low;
	if (head != line->node.high || tail != line->node.low) {
		*ref = gate_is_below(head, tail, line->node.high, line->node.low)
			       ? line->node.below
			       : line->node.above;
		return true;
	}
	word = line->node.at & 64 ? low : high;
	child = word << (line->node.at & 63) >> (64 - line->node.bits & 63);
	n = line->node.first + (child >> 4);
	line = bpf_map_lookup_elem(&gate_lines, &n);
	*ref = line ? line->child[child & 15] : 0;
	return false;
}

/* The row of an address. Verified alone: all addresses go through it. */
__feature(FEATURE_GATE) __noinline __u32 gate_find(__u32 ref, __u64 high, __u64 low)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i <= GATE_DEPTH; i++)
		if (gate_step(&ref, high, low))
			return ref;
	return 0;
}

/* Likewise, without a call where few steps are enough. */
static __always_inline __u32 gate_find_near(__u32 ref, __u64 high, __u64 low)
{
	if (gate_step(&ref, high, low) || gate_step(&ref, high, low) || gate_step(&ref, high, low))
		return ref;
	return gate_find(ref, high, low);
}

/* The row of a number of 16 bits. */
static __always_inline __u32 gate_find_number(const volatile struct gate_table *t, __u32 which,
					      __u16 value, bool known)
{
	const struct gate_page *page;
	__u32 n, number = value;

	if (!known)
		return t->no_number[which];
	barrier_var(
		number); /* Linux 6.1 does not know that a port whose bytes it swapped has 16 bits */
	n = t->page + t->pages[which][number >> 8 & 0xff];
	page = bpf_map_lookup_elem(&gate_pages, &n);
	return page ? page->row[number & 0xff] : 0;
}

/* The entry of an interface; NULL: its packets do not meet the rules. */
static __always_inline const volatile struct gate_iface *gate_iface_of(__u32 copy, __u32 iface)
{
	__u32 bucket = iface * 0x9e3779b1U >> 23;

#pragma clang loop unroll(full)
	for (int i = 0; i < GATE_WAYS; i++) {
		const volatile struct gate_iface *one =
			&gate.iface[copy & 1][bucket & (GATE_BUCKETS - 1)][i];

		if (one->iface == iface)
			return one;
	}
	return NULL;
}

/* Likewise; NULL also where they do not meet them at this hook. */
static __always_inline const volatile struct gate_iface *gate_find_iface(__u32 copy, __u32 iface,
									 __u32 hook)
{
	const volatile struct gate_iface *one = gate_iface_of(copy, iface);

	return one && one->hooks & hook ? one : NULL;
}

#endif

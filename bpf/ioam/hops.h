/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hops: what the nodes of a path have written into a trace.
 *
 * Input: a trace option of this node's namespaces, copied to struct ioam_walk. Output: the number of its
 * path, its hops, and the times of hops and links. Called by path.h.
 *
 * A path is identified by what its hops say of themselves: node ids and interface ids. Its number is a hash of
 * them with random keys (NH, as of flows), so that nodes cannot choose ids of which two paths become one.
 */
#ifndef WAYMARK_IOAM_HOPS_H
#define WAYMARK_IOAM_HOPS_H

/* Two for each pair of words: that of the namespace, and three for each hop. */
const volatile __u32 cfg_ioam_path_keys[IOAM_PATH_KEYS] = {};

#define IOAM_NO_TIME (1LL << 63)
#define IOAM_WORDS (IOAM_OPTION_MAX / 4)
#define IOAM_FIRST_WORD (IOAM_HEADER / 4) /* of the node data */

/* Memory for one trace. */
struct ioam_walk {
	__be32 word[3 *
		    IOAM_WORDS]; /* the option; no node's fields reach beyond the second third */
	__s64 delay[IOAM_HOPS]; /* by hop: transit; IOAM_NO_TIME */
	__s64 link[IOAM_HOPS]; /* cell 2i + 1 */
	__u32 seconds[IOAM_HOPS]; /* when the hop received the packet */
	__u32 ns[IOAM_HOPS]; /* IOAM_UNKNOWN: it does not say */
	struct ioam_path_key key;
	struct ioam_path fresh;
	struct ioam_known known;
	__u64 second; /* of the raw traces counted below */
	__u64 reported;
	__u32 len; /* of the option */
	__u32 hops;
	__u32 at; /* word where the next hop begins */
	__u32 zero;
};

/* Where a field is in the data of a node, and ~0, or 0 where the trace lacks it. */
struct ioam_field {
	__u32 at;
	__u32 mask;
};

static __always_inline struct ioam_field ioam_field(__u32 fields, __u32 bit)
{
	struct ioam_field f = {
		.at = ioam_before(fields, bit) / 4,
		.mask = -(fields >> (31 - bit) & 1),
	};

	return f;
}

/* Those that identify a hop, and its times. */
struct ioam_layout {
	struct ioam_field id, ids, seconds, fraction, delay, wide, wides;
};

/* A field as it is in the option, 0 where the trace lacks it. */
static __always_inline __u32 ioam_raw(const struct ioam_walk *walk, __u32 node, struct ioam_field f)
{
	return walk->word[(node + f.at) & (2 * IOAM_WORDS - 1)] & f.mask;
}

static __always_inline __u32 ioam_value(const struct ioam_walk *walk, __u32 node,
					struct ioam_field f)
{
	return bpf_ntohl(ioam_raw(walk, node, f));
}

/* The part of a sum that two words add, the i-th pair. */
static __always_inline __u64 ioam_pair(__u32 i, __u32 low, __u32 high)
{
	i = i * 2 & 127;
	if (i > IOAM_PATH_KEYS - 2) /* unreachable; satisfies the verifier */
		return 0;
	return (__u64)(low + cfg_ioam_path_keys[i]) * (high + cfg_ioam_path_keys[i + 1]);
}

/* Nanoseconds of a fraction; IOAM_UNKNOWN where it can be none. */
static __always_inline __u32 ioam_fraction_ns(__u32 fraction)
{
	if (cfg_ioam_time == IOAM_TIME_NTP)
		return (__u64)fraction * NSEC_PER_SEC >> 32;
	if (cfg_ioam_time == IOAM_TIME_PTP)
		return fraction < NSEC_PER_SEC ? fraction : IOAM_UNKNOWN;
	return fraction < 1000000 ? fraction * 1000 : IOAM_UNKNOWN;
}

/* A difference of fractions of a second: whichever second is meant, it is the nearest. */
static __always_inline __s64 ioam_nearest(__s64 d)
{
	if (d > (__s64)NSEC_PER_SEC / 2)
		return d - (__s64)NSEC_PER_SEC;
	return d < -(__s64)NSEC_PER_SEC / 2 ? d + (__s64)NSEC_PER_SEC : d;
}

/* From one hop to another, ns. Seconds may have wrapped; without them, the nearest second is meant. */
static __always_inline __s64 ioam_between(const struct ioam_walk *walk, __u32 from, __u32 to)
{
	__u32 a = walk->ns[from & (IOAM_HOPS - 1)], b = walk->ns[to & (IOAM_HOPS - 1)];
	__s64 d = (__s32)(b - a);

	if (a == IOAM_UNKNOWN || b == IOAM_UNKNOWN)
		return IOAM_NO_TIME;
	if (bpf_ntohl(walk->word[2]) & IOAM_BIT(2))
		return d + (__s64)NSEC_PER_SEC * (__s32)(walk->seconds[to & (IOAM_HOPS - 1)] -
							 walk->seconds[from & (IOAM_HOPS - 1)]);
	return ioam_nearest(d);
}

/* The times of a hop whose data begin at word `at`. Verified alone: each hop would double the ways. */
__feature(FEATURE_IOAM) __noinline
	int ioam_walk_times(struct ioam_walk *walk, const struct ioam_layout *l, __u32 i, __u32 at)
{
	__u32 delay, ns, seconds;

	if (!walk || !l)
		return 0;
	delay = ioam_value(walk, at, l->delay) | ~l->delay.mask;
	ns = ioam_value(walk, at, l->fraction);
	seconds = ioam_value(walk, at, l->seconds);
	i &= IOAM_HOPS - 1;
	walk->delay[i] = delay & IOAM_DELAY_OVERFLOW ? IOAM_NO_TIME : delay;
	if (ns != IOAM_UNKNOWN || (seconds | ~l->seconds.mask) != IOAM_UNKNOWN)
		ns = ioam_fraction_ns(ns);
	walk->ns[i] = ns | ~l->fraction.mask;
	walk->seconds[i] = seconds;
	return 0;
}

/*
 * Reads the hops of the trace in walk->word, whose node data begin at word walk->at. Its id, hops and
 * times; IOAM_PASS, or a reason. Verified alone; what loops change is in memory, which the verifier
 * does not follow.
 */
__feature(FEATURE_IOAM) __noinline int ioam_walk_hops(struct ioam_walk *walk)
{
	struct ioam_layout l;
	__u32 fields, end, size, hops = 0;
	__u64 sum;

	if (!walk)
		return IOAM_UNREADABLE;
	fields = bpf_ntohl(walk->word[2]);
	size = ioam_node_length(fields);
	end = walk->len / 4;
	l.id = ioam_field(fields, 0);
	l.ids = ioam_field(fields, 1);
	l.seconds = ioam_field(fields, 2);
	l.fraction = ioam_field(fields, 3);
	l.delay = ioam_field(fields, 4);
	l.wide = ioam_field(fields, 8);
	l.wides = ioam_field(fields, 9);
	/* Namespace, Trace-Type, and whether nodes are missing. */
	sum = ioam_pair(0, bpf_ntohl(walk->word[1]) & (0xffff0000 | IOAM_OVERFLOW), fields);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < IOAM_HOPS; i++) {
		__u32 at = WHOLE(walk->at), head, wide = fields & (IOAM_BIT(8) | IOAM_BIT(9));

		barrier_var(wide); /* the verifier would follow both ways on through the loop */
		if (at + size > end || at >= end)
			break;
		sum += ioam_pair(1 + i * 3, ioam_value(walk, at, l.id) & 0xffffff,
				 ioam_raw(walk, at, l.ids));
		if (wide) {
			struct ioam_field low = { l.wide.at + 1, l.wide.mask };
			struct ioam_field out = { l.wides.at + 1, l.wides.mask };

			sum += ioam_pair(2 + i * 3, ioam_value(walk, at, l.wide) & 0xffffff,
					 ioam_raw(walk, at, low));
			sum += ioam_pair(3 + i * 3, ioam_raw(walk, at, l.wides),
					 ioam_raw(walk, at, out));
		}
		ioam_walk_times(walk, &l, i, at);
		hops++;
		at += size;
		head = walk->word[at & (2 * IOAM_WORDS - 1)];
		at += ioam_take(fields, 22, 1 + (bpf_ntohl(head) >> 24));
		WHOLE(walk->at) = at;
	}
	walk->hops = hops;
	walk->key.id = sum;
	if (WHOLE(walk->at) != end)
		return hops == IOAM_HOPS && WHOLE(walk->at) < end ? IOAM_PATH_LONG
								  : IOAM_PATH_MALFORMED;
	return IOAM_PASS;
}

/* The times of links: see struct ioam_cell. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_walk_links(struct ioam_walk *walk)
{
	__u32 last;

	if (!walk)
		return 0;
	last = walk->hops - 1;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < IOAM_HOPS; i++) {
		__s64 d, before;

		if (i >= last)
			break;
		d = ioam_between(walk, i + 1, i);
		before = walk->delay[(i + 1) & (IOAM_HOPS - 1)];
		if (d != IOAM_NO_TIME && before != IOAM_NO_TIME)
			d -= before;
		walk->link[i] = d;
	}
	walk->link[last & (IOAM_HOPS - 1)] = last ? ioam_between(walk, last, 0) : IOAM_NO_TIME;
	return 0;
}

#endif

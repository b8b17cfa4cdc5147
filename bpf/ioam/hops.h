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

/* Where a field is in the data of a node, and ~0, or 0 where the trace lacks it. */
struct ioam_field {
	__u32 at;
	__u32 mask;
};

/* Those that identify a hop, and its times. */
struct ioam_layout {
	__u32 fields; /* Trace-Type that it is of */
	__u32 size; /* of the data of a node, in words, without its snapshot */
	struct ioam_field id, ids, seconds, fraction, delay, wide, wides;
};

/* Memory for one trace. */
struct ioam_walk {
	__be32 word[3 *
		    IOAM_WORDS]; /* the option; no node's fields reach beyond the second third */
	__s64 time[2 * IOAM_HOPS]; /* by cell of the path: see struct ioam_cell; IOAM_NO_TIME */
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
	struct ioam_layout layout; /* of the trace before: mostly that of this one, too */
};

static __always_inline struct ioam_field ioam_field(__u32 fields, __u32 bit)
{
	struct ioam_field f = {
		.at = ioam_before(fields, bit) / 4,
		.mask = -(fields >> (31 - bit) & 1),
	};

	return f;
}

/* In memory: of what is there, the verifier does not follow both ways that a mask can be. */
static __always_inline const struct ioam_layout *ioam_layout(struct ioam_walk *walk, __u32 fields)
{
	struct ioam_layout *l = &walk->layout;

	if (l->fields != fields) {
		l->fields = fields;
		l->size = ioam_node_length(fields);
		l->id = ioam_field(fields, 0);
		l->ids = ioam_field(fields, 1);
		l->seconds = ioam_field(fields, 2);
		l->fraction = ioam_field(fields, 3);
		l->delay = ioam_field(fields, 4);
		l->wide = ioam_field(fields, 8);
		l->wides = ioam_field(fields, 9);
	}
	barrier();
	return l;
}

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

/*
 * Times of hops are computed without jumps: the verifier would follow both ways at each hop, or each hop would take
 * calls, of which a return takes as long as thirty instructions.
 */

/* 1 where a 32-bit word is IOAM_UNKNOWN, else 0. */
static __always_inline __u64 ioam_is_unknown(__u32 word)
{
	__u64 next = (__u64)word + 1;

	barrier_var(next);
	return next >> 32;
}

/* Nanoseconds of a fraction; IOAM_UNKNOWN where it can be none. */
static __always_inline __u32 ioam_fraction_ns(__u32 fraction)
{
	if (cfg_ioam_time == IOAM_TIME_NTP)
		return (__u64)fraction * NSEC_PER_SEC >> 32;
	if (cfg_ioam_time == IOAM_TIME_PTP)
		return fraction | -(__u32)is_less(NSEC_PER_SEC - 1, fraction);
	return fraction * 1000 | -(__u32)is_less(1000000 - 1, fraction);
}

/* A difference of fractions of a second: whichever second is meant, it is the nearest. */
static __always_inline __s64 ioam_nearest(__s64 d)
{
	const __s64 half = NSEC_PER_SEC / 2;

	return d + (__s64)NSEC_PER_SEC * (__s64)(is_less(d, -half) - is_less(half, d));
}

/*
 * From one hop to another, less so many ns, which is a time of the former, or IOAM_NO_TIME. Seconds may have wrapped;
 * without them, the nearest second is meant.
 */
static __always_inline __s64 ioam_between(const struct ioam_walk *walk, __u32 from, __u32 to,
					  __s64 less)
{
	__u32 a, b, seconds;
	__s64 d, near, has;
	__u64 unknown;

	from &= IOAM_HOPS - 1;
	to &= IOAM_HOPS - 1;
	a = walk->ns[from];
	b = walk->ns[to];
	seconds = walk->seconds[to] - walk->seconds[from]; /* 0 where there are none */
	d = (__s64)(__s32)(b - a);
	near = ioam_nearest(d);
	has = -(__s64)(bpf_ntohl(walk->word[2]) >> (31 - 2) & 1);
	barrier_var(has);
	d = (d & has) | (near & ~has);
	d += (__s64)NSEC_PER_SEC * (__s32)seconds;
	unknown = ioam_is_unknown(a) | ioam_is_unknown(b);
	return ((d - at_least_0(less)) & (__s64)(unknown - 1)) | (__s64)(unknown << 63);
}

/* The times of hop i, whose data begin at word `at`, and of the link from it. */
static __always_inline void ioam_walk_times(struct ioam_walk *walk, const struct ioam_layout *l,
					    __u32 i, __u32 at)
{
	__u32 delay = ioam_value(walk, at, l->delay) | ~l->delay.mask;
	__u32 fraction = ioam_value(walk, at, l->fraction);
	__u32 seconds = ioam_value(walk, at, l->seconds);
	__u64 over = delay >> 31, none;
	__s64 known;

	barrier_var(over);
	known = (delay & (over - 1)) | over << 63;
	none = ioam_is_unknown(fraction) & ioam_is_unknown(seconds | ~l->seconds.mask);
	walk->ns[i & (IOAM_HOPS - 1)] =
		ioam_fraction_ns(fraction) | -(__u32)none | ~l->fraction.mask;
	walk->seconds[i & (IOAM_HOPS - 1)] = seconds;
	walk->time[2 * i & (2 * IOAM_HOPS - 1)] = known;
	/* In the first hop it is nobody's, and overwritten. */
	walk->time[(2 * i - 1) & (2 * IOAM_HOPS - 1)] = ioam_between(walk, i, i - 1, known);
}

/*
 * Reads the hops of the trace in walk->word, whose node data begin at word walk->at. Its id, hops and
 * times; IOAM_PASS, or a reason. Verified alone; what loops change is in memory, which the verifier
 * does not follow.
 */
__feature(FEATURE_IOAM) __noinline int ioam_walk_hops(struct ioam_walk *walk)
{
	const struct ioam_layout *l;
	__u32 fields, end, size, hops = 0;
	__u64 sum;

	if (!walk)
		return IOAM_UNREADABLE;
	fields = bpf_ntohl(walk->word[2]);
	end = walk->len / 4;
	l = ioam_layout(walk, fields);
	size = l->size;
	/* Namespace, Trace-Type, and whether nodes are missing. */
	sum = ioam_pair(0, bpf_ntohl(walk->word[1]) & (0xffff0000 | IOAM_OVERFLOW), fields);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < IOAM_HOPS; i++) {
		__u32 at = WHOLE(walk->at), head, wide = fields & (IOAM_BIT(8) | IOAM_BIT(9));

		barrier_var(wide); /* the verifier would follow both ways on through the loop */
		if (at + size > end || at >= end)
			break;
		sum += ioam_pair(1 + i * 3, ioam_value(walk, at, l->id) & 0xffffff,
				 ioam_raw(walk, at, l->ids));
		if (wide) {
			struct ioam_field low = { l->wide.at + 1, l->wide.mask };
			struct ioam_field out = { l->wides.at + 1, l->wides.mask };

			sum += ioam_pair(2 + i * 3, ioam_value(walk, at, l->wide) & 0xffffff,
					 ioam_raw(walk, at, low));
			sum += ioam_pair(3 + i * 3, ioam_raw(walk, at, l->wides),
					 ioam_raw(walk, at, out));
		}
		ioam_walk_times(walk, l, i, at);
		hops++;
		at += size;
		head = walk->word[at & (2 * IOAM_WORDS - 1)];
		at += ioam_take(fields, 22, 1 + (bpf_ntohl(head) >> 24));
		WHOLE(walk->at) = at;
	}
	walk->hops = hops;
	walk->key.id = sum;
	hops = (hops - 1) & (IOAM_HOPS - 1);
	walk->time[2 * hops + 1] = hops ? ioam_between(walk, hops, 0, 0) : IOAM_NO_TIME;
	hops = walk->hops;
	if (WHOLE(walk->at) != end)
		return hops == IOAM_HOPS && WHOLE(walk->at) < end ? IOAM_PATH_LONG
								  : IOAM_PATH_MALFORMED;
	return IOAM_PASS;
}

#endif

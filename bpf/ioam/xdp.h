/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * IOAM at XDP: transit in place, before a packet becomes an skb.
 *
 * Input: a frame. Output: the frame with this node's data, and struct hints_meta in front of it,
 * which has a verdict for tc: a packet that is dropped there is in the flows. Where nothing can be
 * left in front of a frame, it stays as it is, and tc does the work.
 *
 * Packets with prepared data call one helper, and another one for the time: where returns are protected against
 * speculation, each call takes 5 ns, here as in a function of our own. For the same reason, no word is
 * read again in another size than it was written in.
 */
#ifndef WAYMARK_IOAM_XDP_H
#define WAYMARK_IOAM_XDP_H

#define IOAM_SHORT 64 /* bytes of prepared data that are written here; transit.h writes others */

/* Copies n bytes of prepared data. to: max bytes can be written. */
static __always_inline void ioam_put_words(void *to, const struct ioam_prepared *p, __u32 n,
					   __u32 max)
{
#pragma unroll
	for (__u32 i = 0; i < IOAM_SHORT; i += 8) {
		if (i < max && i + 8 <= n)
			*(__u64 *)(to + i) = *(const __u64 *)(p->data + i / 4);
		else if (i < max && i + 4 <= n)
			*(__be32 *)(to + i) = p->data[i / 4];
	}
}

/* The sum of n bytes of the packet, in words as they are in memory. */
static __always_inline __u64 ioam_sum_words(const void *from, __u32 n)
{
	__u64 all = 0, high = 0, word;

#pragma unroll
	for (__u32 i = 0; i < IOAM_SHORT; i += 8) {
		if (i + 8 <= n) {
			word = *(const __u64 *)(from + i);
			all += word;
			high += word >> 32;
		} else if (i + 4 <= n) {
			all += *(const __u32 *)(from + i);
		}
	}
	return all - (high << 32) +
	       high; /* lower halves, however many carries were lost, and upper ones */
}

/* One word of the node data at `to`, if they have it. It is within them, which only the verifier does not know. */
static __always_inline void ioam_put_word(void *to, const void *end, __u8 offset, __be32 value)
{
	__be32 *at = to + (offset & (IOAM_SHORT - 1));

	if (offset != IOAM_ABSENT && (void *)(at + 1) <= end)
		*at = value;
}

static __always_inline void ioam_put_byte(void *to, const void *end, __u8 offset, __u8 value)
{
	__u8 *at = to + (offset & (IOAM_SHORT - 1));

	if (offset != IOAM_ABSENT && (void *)(at + 1) <= end)
		*at = value;
}

/*
 * The checksum complement of p's data, where they replace n bytes of the packet: ioam_complement() of sums of words as
 * they are in memory, which are less than IOAM_SUM_ZERO.
 */
#define IOAM_SUM_ZERO (0xffffULL << 32)

static __always_inline __be16 ioam_complement_usual(const void *to, const struct ioam_prepared *p,
						    __u32 n, __u32 hop_limit, __be32 fraction)
{
	__u64 sum = IOAM_SUM_ZERO - p->sum;

	barrier_var(sum); /* one after the other takes less stack */
	if (!p->hop_limit)
		sum -= bpf_htons(hop_limit << 8);
	barrier_var(sum);
	if (p->hop_limit_wide != IOAM_ABSENT)
		sum -= bpf_htons(hop_limit << 8);
	if (p->fraction != IOAM_ABSENT)
		sum -= fraction;
	barrier_var(sum);
	return ioam_fold(sum + bpf_htons(n / 4) + ioam_sum_words(to, n));
}

/* Writes prepared data over the free space of a trace; false: nothing was done. */
static __always_inline bool ioam_put_usual(struct xdp_md *xdp, const struct ioam_prepared *p,
					   const struct ioam_usual *u, __be32 fraction)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end, *to;
	__u32 offset = ioam_usual_data(p, u), n = p->bytes, hop_limit = u->hop_limit - 1;
	__be16 complement = 0, *at;

	if (offset > HEADERS_MAX || data + u->at + sizeof(__be16) > end)
		return false;
	to = data + offset;
	if (n <= IOAM_SHORT / 2 && !p->neutral && to + IOAM_SHORT / 2 <= end) {
		ioam_put_words(to, p, n, IOAM_SHORT / 2);
	} else if (n <= IOAM_SHORT && to + IOAM_SHORT <= end) {
		if (p->neutral)
			complement = ioam_complement_usual(to, p, n, hop_limit, fraction);
		ioam_put_words(to, p, n, IOAM_SHORT);
		if (p->neutral) {
			at = to + 2 + (p->complement & (IOAM_SHORT - 1));
			if ((void *)(at + 1) <= end)
				*at = complement;
		}
	} else {
		return false;
	}
	if (!p->hop_limit)
		*(__u8 *)to = hop_limit;
	ioam_put_word(to, end, p->fraction, fraction);
	ioam_put_byte(to, end, p->hop_limit_wide, hop_limit);
	*(__be16 *)(data + u->at) = bpf_htons(u->lengths - n / 4);
	return true;
}

/* Leaves in front of the frame what tc has to know. */
static __always_inline void ioam_leave(struct xdp_md *xdp, __u64 received, __u8 own)
{
	struct hints_meta *m = (void *)(long)xdp->data_meta;

	if ((void *)(m + 1) > (void *)(long)xdp->data) /* unreachable; satisfies the verifier */
		return;
	*m = (struct hints_meta){
		.time = received,
		.own = own | HINTS_OWN_IOAM,
		.owner = ioam_owner(xdp),
		.version = HINTS_META_1,
	};
}

/* A packet for which nothing is prepared, with space in front of it, which is used unless 0. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_xdp_general(struct xdp_md *xdp, __u32 l3)
{
	struct ioam_work *w = ioam_begin(xdp, l3);
	__u8 own = 0;

	if (!w) {
		bpf_xdp_adjust_meta(xdp, sizeof(struct hints_meta));
		return 0;
	}
	if (ioam_border(xdp, w, DIRECTION_INGRESS) != IOAM_PASS ||
	    ioam_transit(xdp, w) != IOAM_PASS)
		own = HINTS_OWN_DROP;
	if (w->written)
		own |= HINTS_OWN_WRITTEN;
	ioam_leave(xdp, w->written ? w->received : 0, own);
	return 1;
}

/* A packet for which p is prepared, with space in front of it; false: nothing was done. */
static __always_inline bool ioam_xdp_usual(struct xdp_md *xdp, struct ioam_prepared *p,
					   const struct ioam_usual *u)
{
	__u8 own = HINTS_OWN_WRITTEN;
	__u64 received = 0;
	__be32 fraction = 0;

	if (p->timed) {
		received = ioam_arrival(xdp);
		fraction = ioam_time_of(p, received);
	}
	if (!ioam_put_usual(xdp, p, u, fraction))
		return false;
	ioam_stat(IOAM_WRITTEN);
	ioam_leave(xdp, received, p->settled ? own | HINTS_OWN_SETTLED : own);
	return true;
}

/* true: struct hints_meta is in front of the frame. */
static __always_inline bool ioam_xdp(struct xdp_md *xdp)
{
	struct ioam_prepared *p = NULL;
	struct ioam_usual u;
	__u32 l3 = 0;

	if (ioam_usual(xdp, &u))
		p = ioam_prepared_for(&u);
	if (!p && !ioam_has_options(xdp, &l3))
		return false;
	if (bpf_xdp_adjust_meta(xdp, -(int)sizeof(struct hints_meta)))
		return false;
	if (p && ioam_xdp_usual(xdp, p, &u))
		return true;
	return ioam_xdp_general(xdp, p ? IOAM_USUAL_L3 : l3);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether the end of a tunnel is there: the agent sends it an ICMPv6 echo request through the tunnel every second
 * (internal/inband/ioam/echo.go), since nothing else shows it of packets that nobody acknowledges.
 *
 * Input: a packet that leaves. Output: the insertion of such a request, whose identifier says from here on
 * that it went through the tunnel; whether an answer came lately, and to how long a request. Called by insert.h and
 * wrap.h.
 */
#ifndef WAYMARK_IOAM_ECHO_H
#define WAYMARK_IOAM_ECHO_H

/* So old an answer may be: two that are lost in a row change nothing. */
#define IOAM_ANSWER_LIFETIME 3000000000ULL

#define IOAM_ECHO_WRAPPED 0x8000 /* in the identifier; the agent gives others */
#define IOAM_ECHO_REQUEST 128

/* Whether packets that nobody acknowledges may be put into a tunnel. */
static __always_inline bool ioam_answers_now(const struct ioam_insertion *in, __u64 now)
{
	__u64 answered = ioam.answered[in->slot & (IOAM_ANSWERED_SLOTS - 1)];

	return !(in->flags & IOAM_INSERTION_ECHO) || is_recent(answered, now, IOAM_ANSWER_LIFETIME);
}

/* How long packets that nobody acknowledges may be in a tunnel: a narrow link need not report those that it drops. */
static __always_inline __u32 ioam_longest(const struct ioam_insertion *in)
{
	__u32 longest = ioam.longest[in->slot & (IOAM_ANSWERED_SLOTS - 1)];

	if (!(in->flags & IOAM_INSERTION_ECHO))
		return 0xffffffff;
	return longest > IPV6_MTU_MIN ? longest : IPV6_MTU_MIN;
}

/* Whether an end that reported at a time that it takes no packets has answered since. */
static __always_inline bool ioam_answered_since(const struct ioam_insertion *in, __u64 at)
{
	__u64 answered = ioam.answered[in->slot & (IOAM_ANSWERED_SLOTS - 1)];

	return in->flags & IOAM_INSERTION_ECHO && (__s64)(answered - at) > 0;
}

/* Marks a request as one that goes through the tunnel. 1, or 0: it cannot be changed. */
__feature(FEATURE_IOAM) __noinline int ioam_echo_sign(struct __sk_buff *skb, const struct packet *p)
{
	__u32 at;
	__be16 was, is;

	if (!p)
		return 0;
	at = p->l4_offset;
	if (p->id.proto != IPPROTO_ICMPV6 || p->id.dport != bpf_htons(IOAM_ECHO_REQUEST << 8) ||
	    bpf_skb_load_bytes(skb, at + 4, &was, sizeof(was)))
		return 0;
	is = was | bpf_htons(IOAM_ECHO_WRAPPED);
	return !bpf_l4_csum_replace(skb, at + 2, was, is, sizeof(is)) &&
	       !bpf_skb_store_bytes(skb, at + 4, &is, sizeof(is), 0);
}

/* Whether the agent asks with this packet; then nothing but the tunnel may take it. */
static __always_inline bool ioam_is_echo(struct __sk_buff *skb)
{
	return (skb->priority & ~(IOAM_INSERTIONS - 1)) == MARK_ECHO_PRIORITY &&
	       !skb->ingress_ifindex;
}

/* Whether a request is one for an insertion that the interface has. */
static __always_inline bool ioam_echo_fits(const struct packet *p, const struct ioam_insertion *in,
					   __u32 copy, __u32 id)
{
	__u32 iface = p->id.iface;
	struct ioam_iface *known = bpf_map_lookup_elem(&ioam_ifaces, &iface);
	const __u64 *source = (const __u64 *)in->source;
	const __u64 *destination = (const __u64 *)in->destination;

	return known && in->mode == IOAM_IP6IP6 && in->flags & IOAM_INSERTION_ECHO &&
	       (known->copy[copy].own | known->copy[copy].forwarded) >> id & 1 &&
	       source[0] == p->word[WORD_SADDR] && source[1] == p->word[WORD_SADDR + 1] &&
	       destination[0] == p->word[WORD_DADDR] && destination[1] == p->word[WORD_DADDR + 1];
}

/* Not 0: the request may go. Verified alone, as all that is rare. */
__feature(FEATURE_IOAM) __noinline
	int ioam_echo_begin(struct __sk_buff *skb, const struct packet *p, struct ioam_work *w)
{
	__u32 copy = ioam.copy & 1, id = skb->priority & (IOAM_INSERTIONS - 1);
	__u32 index = copy * IOAM_INSERTIONS + id;
	struct ioam_insertion *in = bpf_map_lookup_elem(&ioam_insertions, &index);

	if (!in || !p || !w || !ioam_echo_fits(p, in, copy, id) || !ioam_echo_sign(skb, p))
		return 0;
	w->copy = copy;
	ioam_prepare(skb, p, w, in);
	return 1;
}

/* The insertion whose tunnel is asked; NULL: the interface has none such. */
static __always_inline const struct ioam_insertion *
ioam_echo(struct __sk_buff *skb, const struct packet *p, struct ioam_work *w)
{
	__u32 index;

	if (!ioam_echo_begin(skb, p, w))
		return NULL;
	index = w->copy * IOAM_INSERTIONS + (skb->priority & (IOAM_INSERTIONS - 1));
	return bpf_map_lookup_elem(&ioam_insertions, &index);
}

#endif

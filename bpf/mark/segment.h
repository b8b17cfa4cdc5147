/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the steps of inserting into a packet hand to each other. Nothing in it outlives the packet;
 * it is in per-CPU memory of each stage, since the stack is full.
 */
#ifndef WAYMARK_MARK_SEGMENT_H
#define WAYMARK_MARK_SEGMENT_H

/* Results of a step of marking in addition to enum mark_reason. */
#define MARK_OK (-1)
#define MARK_NOT_NAMED (-2)
#define MARK_TRY (-3) /* MARK_OK, and nobody knows whether it arrives */

/* Where options for the destination go, as offsets from the frame's start. */
struct mark_place {
	__u32 upper; /* the upper layer, which they stand before */
	__u32 link; /* byte that names the upper layer */
	__u32 join; /* Destination Options header to extend; 0: a new one */
	__u8 proto; /* of the upper layer */
};

/* A segment that leaves: its sequence numbers, and its length. */
struct mark_segment {
	__u32 seq;
	__u32 end; /* after its last byte */
	__u32 ack;
	__u32 len; /* as an IP packet, as it leaves; of each one in a burst */
	bool tcp;
	bool empty; /* no payload */
	bool tried; /* a datagram is marked that is not known to arrive; see datagram.h */
	__u32 mark; /* bytes by which it is to grow, of all stages together */
	__u32 later; /* bytes by which it grows on its way at most; only for fit_large() */
	__u64 flags; /* for bpf_skb_adjust_room(); see fit.h */
};

/*
 * The key of a packet's flow. swap: the packet is received. Where a protocol has
 * no ports both are 0, as RFC 8250 says; an ICMPv6 echo has its identifier.
 */
static __always_inline void key_of(const struct packet *p, bool swap, enum mark_kind kind,
				   struct mark_key *key)
{
	__u32 local = swap ? WORD_DADDR : WORD_SADDR, remote = swap ? WORD_SADDR : WORD_DADDR;
	bool icmp = p->id.proto == IPPROTO_ICMPV6;
	__u64 lport = swap && !icmp ? p->id.dport : p->id.sport;
	__u64 rport = icmp ? 0 : swap ? p->id.sport : p->id.dport;
	__u64 *word = (__u64 *)key;

	/* By words: the hash and the comparison read it so, and at once. */
	word[0] = p->word[local];
	word[1] = p->word[local + 1];
	word[2] = p->word[remote];
	/* Link-local addresses are those of an interface, which takes bytes 4 to 7: they are 0 (RFC 4291 section 2.5.6). */
	if ((word[2] & bpf_htons(0xffc0)) == bpf_htons(0xfe80))
		word[2] |= (__u64)p->id.iface << 32;
	word[3] = p->word[remote + 1];
	word[4] = lport | rport << 16 | (__u64)(__u16)cfg_netns << 32 | (__u64)p->id.proto << 48 |
		  (__u64)kind << 56;
}

#endif

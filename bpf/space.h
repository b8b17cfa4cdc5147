/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Space for extension headers and options: the one way in which packets grow and
 * shrink.
 *
 * Input: an IPv6 packet, and by how many bytes it changes in total. Output: a gap
 * of that size in its extension headers, whose bytes belong to no header; or a
 * result that says why not. Called by stages at tc.
 *
 * The kernel adds and removes bytes only directly after the IPv6 header, and each
 * time moves all headers before it. So there is one gap in a packet, for all
 * stages. To insert, it is made once, with the sum of their bytes; each stage moves
 * it on to its place, writes there, and leaves the rest of the gap to the next. To
 * remove, the gap begins as the option of the last one, moves back, takes in the
 * options that it meets, and is removed once.
 */
#ifndef WAYMARK_SPACE_H
#define WAYMARK_SPACE_H

/* Bytes of extension headers that are moved at most. */
#define SPACE_MOVE_MAX 512

/* Bytes of a gap. */
#define SPACE_GAP_MAX 4096

/* Units in which headers are moved. Gaps, and all headers around them, have such sizes. */
#define SPACE_UNIT 8

/*
 * To shrink: segments of a burst stay as large as they are, and a checksum that the NIC found right
 * stays right, since it does not cover extension headers.
 */
#define SPACE_SHRINK (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

enum space_result {
	SPACE_OK,
	SPACE_FRAME, /* the kernel would make space elsewhere */
	SPACE_UNREADABLE,
	SPACE_JUMBOGRAM, /* its length is in an option */
	SPACE_TOO_LONG, /* it would exceed 65535 bytes */
	SPACE_DEEP, /* more would have to be moved than SPACE_MOVE_MAX */
	SPACE_REFUSED, /* by the kernel; the packet is as it was */
	SPACE_BROKEN, /* the packet is neither as it was nor as it should be: drop it */
};

/* The gap. */
struct space {
	__u32 at; /* offset from the frame's start */
	__u32 bytes;
};

#define AF_INET6 10

/* Verified alone. */
__noinline int is_framed_raw(struct __sk_buff *skb, __u32 l3)
{
	struct frame f = frame_of(skb);
	__u64 there[5], *here, at = l3;

	barrier_var(at); /* as in space_ipv6() */
	if (at > sizeof(struct ethhdr))
		return false;
	here = f.data + at;
	if ((void *)(here + 5) > f.end || /* all callers have read it there */
	    bpf_skb_load_bytes_relative(skb, 0, there, sizeof(there), BPF_HDR_START_NET))
		return false;
	return there[0] == here[0] && there[1] == here[1] && there[2] == here[2] &&
	       there[3] == here[3] && there[4] == here[4];
}

/*
 * Whether the kernel takes the IPv6 header to be where it was found: it makes
 * space after its own idea of it. A sender of raw frames can make the two differ,
 * by a tag in the frame or by a length of the link header; a socket of IP can't.
 */
static __always_inline enum space_result space_framed(struct __sk_buff *skb, __u32 l3)
{
	__u32 link = cfg_features & FEATURE_NO_LINK ? 0 : sizeof(struct ethhdr);
	struct bpf_sock *sk = skb->sk;

	if (l3 != link || (!(sk && sk->family == AF_INET6) && !is_framed_raw(skb, link)))
		return SPACE_FRAME;
	return SPACE_OK;
}

/* Whether the length of the packet can grow by so many bytes. */
static __always_inline enum space_result space_fits(const struct ipv6hdr *ip, __u32 bytes)
{
	if (!ip->payload_len)
		return SPACE_JUMBOGRAM;
	if (bpf_ntohs(ip->payload_len) > 0xffff - bytes)
		return SPACE_TOO_LONG;
	return SPACE_OK;
}

/* A burst as long as this exceeds what IPv6 can say of its length, and what devices take by default. */
#define SPACE_BURST 65536

/*
 * Whether a burst that is longer by so many bytes is too long for its device: Linux would cut it in software, which
 * takes ten times as long, whatever the device could do. Verified alone.
 */
__noinline int space_bursts(struct __sk_buff *skb, __u32 bytes)
{
	__u32 max = frame_gso_max(skb), len = skb->len + bytes;

	return len >= SPACE_BURST || (max && len >= max);
}

/*
 * Whether headers up to `at`, which a gap ends or begins at, can be moved. Makes
 * them and `bytes` more linear, and the packet's own, so that nothing fails later.
 * Pointers into the packet are invalid then.
 */
static __always_inline enum space_result space_reach(struct __sk_buff *skb, __u32 l3, __u32 at,
						     __u32 bytes)
{
	__u32 headers = l3 + sizeof(struct ipv6hdr);

	if (at < headers || at - headers > SPACE_MOVE_MAX)
		return SPACE_DEEP;
	return bpf_skb_pull_data(skb, at + bytes) ? SPACE_REFUSED : SPACE_OK;
}

/* Whether bytes at `at` can be removed, as far as that is known before anything changes. */
static __always_inline enum space_result space_removable(struct __sk_buff *skb, __u32 l3, __u32 at,
							 __u32 bytes)
{
	__be16 len;

	if (bpf_skb_load_bytes(skb, l3 + offsetof(struct ipv6hdr, payload_len), &len, sizeof(len)))
		return SPACE_UNREADABLE;
	if (!len)
		return SPACE_JUMBOGRAM;
	return at == l3 + sizeof(struct ipv6hdr) ? SPACE_OK : space_reach(skb, l3, at, bytes);
}

/*
 * The IPv6 header. Linux 6.1 wants the bound of an offset in the register that is
 * added to the pointer, and does not learn it from a copy on the stack.
 */
static __always_inline struct ipv6hdr *space_ipv6(struct __sk_buff *skb, __u32 l3)
{
	struct ipv6hdr *ip;
	__u64 at = l3;

	barrier_var(at);
	if (at > HEADERS_MAX)
		return NULL;
	ip = (void *)(long)skb->data + at;
	return (void *)(ip + 1) > (void *)(long)skb->data_end ? NULL : ip;
}

/*
 * Makes a packet longer, and other than the kernel: where the headroom of a buffer is too short for that, it
 * takes a larger one, but charges a sender's socket only for the old one (pskb_expand_head()). TCP of a
 * receiver on the same machine, which gets the same buffer, then warns of each packet as it merges buffers
 * (skb_try_coalesce()): a fifth of a transfer's CPU time. It merges none of which a byte of payload is linear.
 */
static __always_inline long space_grow(struct __sk_buff *skb, __u32 bytes, __u32 where, __u64 flags)
{
	__u64 start = (long)skb->data, moved;
	__u32 linear;

	barrier_var(start);
	if (bpf_skb_adjust_room(skb, bytes, where, flags))
		return -1;
	moved = (long)skb->data; /* to the same buffer's front, or to another */
	barrier_var(moved);
	linear = (long)skb->data_end - (long)skb->data;
	if (moved != start - bytes && skb->sk && skb->len > linear)
		bpf_skb_pull_data(skb, linear + 1);
	return 0;
}

/*
 * Makes the gap, directly after the IPv6 header, whose length has the new bytes
 * then. From here on the packet is changed, and could only be dropped. What
 * follows takes no failing helper: the bytes up to the upper layer were read, or
 * pulled, before, and the kernel made the space in linear memory between them.
 */
static __always_inline enum space_result space_make(struct __sk_buff *skb, __u32 l3, __u32 bytes,
						    __u64 flags, struct space *s)
{
	struct ipv6hdr *ip;

	if (space_grow(skb, bytes, BPF_ADJ_ROOM_NET, flags))
		return SPACE_REFUSED;
	ip = space_ipv6(skb, l3);
	if (!ip)
		return SPACE_BROKEN;
	ip->payload_len = bpf_htons(bpf_ntohs(ip->payload_len) + bytes);
	s->at = l3 + sizeof(*ip);
	s->bytes = bytes;
	return SPACE_OK;
}

/* The first n bytes of the gap are written: they are a header now. */
static __always_inline void space_use(struct space *s, __u32 n)
{
	s->at += n;
	s->bytes -= n;
}

/* Moves the gap on, over the headers between it and `to`, which is where it ends then. */
static __noinline int space_forward(struct __sk_buff *skb, struct space *s, __u32 to)
{
	void *at, *from, *end = (void *)(long)skb->data_end;
	__u32 bytes;

	if (!s || s->at > HEADERS_MAX || s->bytes > SPACE_GAP_MAX)
		return SPACE_BROKEN;
	bytes = s->bytes;
	at = (void *)(long)skb->data + s->at;
	from = at + bytes;
#pragma clang loop unroll(disable)
	for (int i = 0; i < SPACE_MOVE_MAX / SPACE_UNIT && s->at + bytes < to; i++) {
		/* One register for the check and the access, as the verifier wants it. */
		asm volatile("" : "+r"(at), "+r"(from));
		if (at + SPACE_UNIT > end || from + SPACE_UNIT > end)
			break;
		*(__u64 *)at = *(__u64 *)from;
		at += SPACE_UNIT;
		from += SPACE_UNIT;
		s->at += SPACE_UNIT;
	}
	return s->at + bytes == to ? SPACE_OK : SPACE_BROKEN;
}

/*
 * Writes into a received packet: the helper corrects a sum over the whole packet
 * (CHECKSUM_COMPLETE).
 */
static __always_inline bool space_put(struct __sk_buff *skb, __u32 at, const void *bytes, __u32 n)
{
	return !bpf_skb_store_bytes(skb, at, bytes, n, BPF_F_RECOMPUTE_CSUM);
}

/* Moves the gap back, over the headers between `to` and it, so that it begins there. */
static __noinline int space_back(struct __sk_buff *skb, struct space *s, __u32 to)
{
	if (!s)
		return SPACE_BROKEN;
#pragma clang loop unroll(disable)
	for (int i = 0; i < SPACE_MOVE_MAX / SPACE_UNIT && s->at > to; i++) {
		__u64 unit;

		s->at -= SPACE_UNIT;
		if (bpf_skb_load_bytes(skb, s->at, &unit, sizeof(unit)) ||
		    !space_put(skb, s->at + s->bytes, &unit, sizeof(unit)))
			return SPACE_BROKEN;
	}
	return s->at == to ? SPACE_OK : SPACE_BROKEN;
}

/* The n bytes before the gap are removed, too. */
static __always_inline void space_join(struct space *s, __u32 n)
{
	s->at -= n;
	s->bytes += n;
}

/* space_take(): the IPv6 header names the same next header as before. */
#define SPACE_SAME_NEXT (-1)

/* Writes both at once, without a helper; a sum over the whole packet is corrected. */
static __always_inline void space_rename(struct __sk_buff *skb, struct ipv6hdr *ip, __u32 less,
					 __u8 next)
{
	__be32 *at = (__be32 *)&ip->payload_len, was = *at;
	__u32 word = bpf_ntohl(was); /* length, next header, hop limit */
	__be32 now = bpf_htonl(((word >> 16) - less) << 16 | next << 8 | (word & 0xff));
	__u64 sum = (__u64)now + (__u32)~was;

	*at = now;
	frame_add_sum(skb, (__u32)sum + (__u32)(sum >> 32));
}

/*
 * Removes a gap that is directly after the IPv6 header, also from its length. next: the header that follows then, or
 * SPACE_SAME_NEXT.
 */
static __always_inline enum space_result space_take(struct __sk_buff *skb, __u32 l3,
						    const struct space *s, int next, __u64 flags)
{
	struct ipv6hdr *ip;
	__be16 len;

	if (bpf_skb_adjust_room(skb, -(__s32)s->bytes, BPF_ADJ_ROOM_NET, flags))
		return SPACE_REFUSED;
	ip = space_ipv6(skb, l3);
	if (!ip)
		return SPACE_BROKEN;
	if (next >= 0) {
		space_rename(skb, ip, s->bytes, next);
		return SPACE_OK;
	}
	len = bpf_htons(bpf_ntohs(ip->payload_len) - s->bytes);
	if (!space_put(skb, l3 + offsetof(struct ipv6hdr, payload_len), &len, sizeof(len)))
		return SPACE_BROKEN;
	return SPACE_OK;
}

#endif

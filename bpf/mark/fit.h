/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether a packet may grow by a mark.
 *
 * Input: a packet that would be marked, by how many bytes in all, and what its
 * flow has shown (guard.h).
 * Output: flags for bpf_skb_adjust_room(), or why it stays as it is. Called by
 * mark.h, after it found the place for the option.
 *
 * No marked packet is longer than the least MTU of IPv6, or a packet that is known
 * to have arrived, or, with an acknowledgment awaited for one at a time, a segment
 * that its socket could send or that headroom was reserved for.
 */
#ifndef WAYMARK_MARK_FIT_H
#define WAYMARK_MARK_FIT_H

/* Room is made, and nothing else changes: segments of a burst grow, too. */
#define FIT_GROW (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)
/* The segments of a burst are cut again, so that they are as long as before. */
#define FIT_CUT BPF_F_ADJ_ROOM_NO_CSUM_RESET

/*
 * Whether the checksum of a UDP burst is left to the device (CHECKSUM_PARTIAL).
 * If not, the kernel finds the header by a position that it does not correct when
 * it gives the packet more memory, and drops the burst. Nothing shows a program
 * which it is, but a helper that replaces words under a checksum leaves it alone
 * where it is not complete yet.
 */
static __noinline int is_checksum_partial(struct __sk_buff *skb, __u32 at)
{
	__be16 before, after;

	if (bpf_skb_load_bytes(skb, at, &before, sizeof(before)) ||
	    bpf_l4_csum_replace(skb, at, 0, 0x1234, sizeof(before)) ||
	    bpf_skb_load_bytes(skb, at, &after, sizeof(after)))
		return false;
	if (before == after)
		return true;
	bpf_skb_store_bytes(skb, at, &before, sizeof(before), 0);
	return false;
}

/*
 * A burst of UDP that a socket of this host makes (UDP_SEGMENT). Not that of a
 * tunnel over UDP, whose socket is another one: it has headers that nobody counted.
 */
static __noinline int fit_udp_burst(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_sock *sk = skb->sk;

	sk = sk ? bpf_sk_fullsock(sk) : NULL;
	if (!sk || sk->protocol != IPPROTO_UDP || sk->src_port != bpf_ntohs(p->id.sport))
		return MARK_BURST_TUNNEL;
	return is_checksum_partial(skb, p->l4_offset + 6) ? MARK_OK : MARK_BURST_CHECKSUM;
}

/*
 * The longest segment that a socket sends, as an IP packet; 0: not known. It is
 * bounded by what the peer takes and what the stack knows of the path.
 */
static __always_inline __u32 socket_segment(struct __sk_buff *skb, const struct packet *p,
					    const struct mark_guard *g)
{
	struct bpf_sock *sk = skb->sk;
	struct bpf_tcp_sock *tcp = sk ? bpf_tcp_sock(sk) : NULL;

	return tcp ? p->l4_offset - p->l3_offset + g->tcp_header + tcp->mss_cache : 0;
}

/*
 * Whether a socket sends less than the interface takes because headroom is reserved: for one of
 * the stages there, or for both.
 */
static __always_inline bool is_reserved(__u32 bytes)
{
	__u32 ioam_bytes = cfg_features & FEATURE_IOAM ? ioam.reserved : 0;

	if (cfg_features & FEATURE_PDM && bytes == PDM_HEADER)
		return true;
	if (!ioam_bytes)
		return false;
	return bytes == ioam_bytes ||
	       (cfg_features & FEATURE_PDM && bytes == ioam_bytes + PDM_HEADER);
}

/* A packet that would be longer than every IPv6 link takes. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int fit_large(struct __sk_buff *skb, const struct packet *p, struct mark_guard *g,
		      struct mark_segment *seg, __u64 now)
{
	__u32 want, len, mtu = 0, path, most, segments, full = 0;
	int reason = MARK_MTU;
	bool could;

	if (!p || !g || !seg || bpf_check_mtu(skb, 0, &mtu, 0, 0) < 0)
		return MARK_MTU;
	len = seg->len;
	want = len + seg->mark;
	path = guard_mtu(g, now);
	most = mtu;
	if (path < most) {
		most = path;
		reason = MARK_PATH_MTU;
	}
	most -= seg->later;
	if (seg->tcp)
		full = socket_segment(skb, p, g);
	/* The socket could send as much, or headroom for a mark was reserved, here or by quote_report(). */
	could = want <= full || is_reserved(mtu - full) || is_reserved(path - full);
	if (want <= most && want <= g->shown && (could || !full)) {
		seg->len = want;
		return MARK_OK;
	}
	if (!seg->tcp)
		return want <= most ? MARK_UNPROVEN : reason;
	segments = skb->gso_size ? (p->id.payload + skb->gso_size - 1) / skb->gso_size : 1;
	if (want > most) {
		if (segments == 1)
			return reason;
	} else if (!g->watch_len && segments <= WATCH_SEGMENTS) {
		if (full && could) {
			seg->len = want;
			return MARK_OK;
		}
		reason = MARK_MSS;
	} else {
		reason = MARK_UNPROVEN;
	}
	/* Segments of TCP may be cut again, and so be no longer than they are. */
	if (skb->gso_size <= seg->mark || len > most)
		return reason;
	seg->flags = FIT_CUT;
	return MARK_OK;
}

/* The packet is short enough for every IPv6 link. */
static __always_inline void fit_small(struct mark_segment *seg, __u32 len, __u32 bytes)
{
	seg->mark = bytes;
	seg->flags = FIT_GROW;
	seg->len = len + bytes;
}

/* later: bytes by which nodes on the path make the packet longer at most. */
static __always_inline int fit(struct __sk_buff *skb, const struct packet *p, struct mark_guard *g,
			       struct mark_segment *seg, __u64 now, __u32 bytes, __u32 later)
{
	int rc;

	seg->mark = bytes;
	seg->flags = FIT_GROW;
	seg->len = p->id.bytes;
	if (skb->gso_size) {
		if (p->id.proto != IPPROTO_TCP) {
			rc = p->id.proto == IPPROTO_UDP ? fit_udp_burst(skb, p) : MARK_BURST_TUNNEL;
			if (rc != MARK_OK)
				return rc;
		}
		seg->len = p->l4_offset - p->l3_offset + p->l4_len + skb->gso_size;
		if (space_bursts(skb, bytes))
			return MARK_TOO_LONG;
	}
	if (seg->len + bytes + later <= IPV6_MTU_MIN) {
		seg->len += bytes;
		return MARK_OK;
	}
	seg->later = later;
	return fit_large(skb, p, g, seg, now);
}

#endif

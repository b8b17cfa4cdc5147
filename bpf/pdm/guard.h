/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A mark must never stop a connection: which packets of a flow may be marked
 * without harm if the path drops marked packets, or packets of this length.
 *
 * Input: a TCP segment on its way out, and its socket. Output: whether it may be
 * marked, and what the acknowledgments so far show of the path. Called by
 * mark.h.
 *
 * What TCP sends again goes unmarked, so whatever a mark cost arrives in the end.
 * Where it is not known whether marked packets arrive, one segment at a time is
 * marked and watched: acknowledged without being sent again, it has shown that
 * they do. Each watched segment that is sent again is a strike. After one, or a few
 * in a row where marked packets arrived before, the flow falls back to unmarked
 * packets; after two such flows so does their destination, unless marked packets
 * of other flows arrived there recently. The same is done for
 * packets longer than any that arrived.
 *
 * An outage is no strike: the unmarked segment that is sent again must arrive.
 */
#ifndef WAYMARK_PDM_GUARD_H
#define WAYMARK_PDM_GUARD_H

/* How long a flow, or a destination, stays without marks. */
#define FALLBACK_NS 600000000000ULL
#define FALLBACK_MIN_NS 60000000000ULL

/* Strikes until a flow falls back, if marked packets of it arrived or if not. */
#define STRIKES_PASSED 3
#define STRIKES_UNKNOWN 1
#define STRIKES_SIZE 2
/* Flows in a row until their destination does. */
#define STRIKES_PATH 2

/* Strikes closer than this are one loss. */
#define STRIKE_GAP_NS 50000000ULL

/* Likewise, of a segment that shows how long packets may be. */
#define SIZE_GAP_NS 1000000000ULL

/* A segment not sent again for so long has arrived, where nobody can be asked. */
#define WATCH_NS 1000000000ULL

/* How often a flow whose marked packets arrive shows it again. */
#define SHOW_NS 20000000000ULL

/* To this a flow's age is known; so often one of datagrams asks about its path. */
#define CHECK_NS 1000000000ULL

/* A burst of more segments is not put at risk. */
#define WATCH_SEGMENTS 4

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_ACK 0x10

#define TCP_OPTION_SACK 5

/* What is known of a path before a flow has shown anything. */
static __always_inline void guard_ask(struct pdm_guard *g, const struct pdm_path *path, __u64 now)
{
	g->checked = now;
	if (!path)
		return;
	if (now < path->blocked)
		g->fallback = path->blocked;
	if (is_recent(path->shown_at, now, PATH_LIFETIME) && path->shown > g->shown)
		g->shown = path->shown;
	if (is_recent(path->narrowed, now, PATH_LIFETIME)) {
		g->narrowed = path->narrowed;
		g->mtu = path->mtu;
	}
	if (is_recent(path_passed(path), now, PATH_PASSED_LIFETIME))
		g->flags |= GUARD_PASSED;
}

static __noinline int guard_begin(struct pdm_work *work, __u64 now)
{
	struct pdm_guard *g = &work->fresh.guard;
	struct pdm_path_key at;
	struct pdm_path *path = path_of(&work->key, &at);

	__builtin_memset(g, 0, sizeof(*g));
	guard_ask(g, path, now);
	if (!path || g->flags & GUARD_PASSED)
		return 0;
	if (path->strikes)
		g->flags |= GUARD_CAREFUL;
	if (work->key.proto != IPPROTO_TCP && path->quiet > g->fallback)
		g->fallback = path->quiet;
	return 0;
}

/* The longest packet that the path is known to take, or more than any. */
static __always_inline __u32 guard_mtu(const struct pdm_guard *g, __u64 now)
{
	return g->mtu && is_recent(g->narrowed, now, PATH_LIFETIME) ? g->mtu : 0xffffffff;
}

/* Packets longer than those that arrived do not: neither will others there. */
static __noinline int guard_narrow(struct pdm_guard *g, const struct pdm_key *key, __u64 now,
				   __u32 mtu)
{
	struct pdm_path *path;
	__u32 known;

	if (mtu < IPV6_MTU_MIN)
		mtu = IPV6_MTU_MIN;
	known = guard_mtu(g, now);
	if (mtu > known)
		return 0;
	if (mtu < known)
		PDM_STAT_ADD(narrowed, 1);
	g->mtu = mtu;
	g->narrowed = now;
	if (g->shown > mtu)
		g->shown = mtu;
	path = path_make(key);
	if (!path)
		return 0;
	if (!is_recent(path->narrowed, now, PATH_LIFETIME) || mtu <= path->mtu) {
		path->mtu = mtu;
		path->narrowed = now;
	}
	if (path->shown > mtu)
		path->shown = mtu;
	return 0;
}

/* Packets as long as this one no longer arrive for certain. */
static __noinline int guard_shrink(struct pdm_guard *g, const struct pdm_key *key, __u32 len)
{
	struct pdm_path_key at;
	struct pdm_path *path = path_of(key, &at);

	if (g->shown > len)
		g->shown = len;
	if (path && path->shown > len)
		path->shown = len;
	return 0;
}

static __noinline int guard_fall_back(struct pdm_guard *g, const struct pdm_key *key, __u64 now)
{
	__u64 lifetime = cfg_pdm_lifetime;
	bool passed = g->flags & GUARD_PASSED;
	struct pdm_path *path;

	/* Flows that never were answered must not fill the table of states. */
	if (lifetime < FALLBACK_MIN_NS)
		lifetime = FALLBACK_MIN_NS;
	if (passed || lifetime > FALLBACK_NS)
		lifetime = FALLBACK_NS;
	g->fallback = now + lifetime;
	g->flags &= ~GUARD_PASSED;
	g->strikes = 0;
	PDM_STAT_ADD(fallbacks, 1);
	path = path_make(key);
	if (!path)
		return 0;
	if (passed)
		path_fails(path, g->failing);
	if (is_recent(path_passed(path), now, PATH_PASSED_LIFETIME))
		return 0;
	if (++path->strikes < STRIKES_PATH)
		return 0;
	path->strikes = STRIKES_PATH - 1; /* the next one, after that time, is enough */
	if (now >= path->blocked)
		PDM_STAT_ADD(blocked, 1);
	path->blocked = now + FALLBACK_NS;
	return 0;
}

/* A marked packet was lost, or so it seems. */
static __noinline int guard_strike(struct pdm_guard *g, const struct pdm_key *key, __u64 now)
{
	__u8 enough = g->flags & GUARD_PASSED ? STRIKES_PASSED : STRIKES_UNKNOWN;

	if (is_recent(g->struck, now, STRIKE_GAP_NS) || now < g->fallback)
		return 0;
	g->struck = now;
	if (!g->strikes)
		g->failing = now;
	if (++g->strikes >= enough)
		guard_fall_back(g, key, now);
	return 0;
}

/* The watched segment arrived once it was sent again without a mark. */
static __noinline int guard_missed(struct pdm_guard *g, const struct pdm_key *key, __u64 now)
{
	__u32 len = g->watch_len;
	bool longer = len > IPV6_MTU_MIN && len > g->shown;

	g->watch_len = 0;
	if (!(g->flags & GUARD_WATCH_MARKED))
		return 0;
	if (len > IPV6_MTU_MIN)
		guard_shrink(g, key, len - PDM_HEADER);
	if (longer) {
		/* With a shorter one lost just before, it is one loss. */
		if (is_recent(g->struck, now, SIZE_GAP_NS))
			return 0;
		if (++g->size_strikes >= STRIKES_SIZE) {
			g->size_strikes = 0;
			guard_narrow(g, key, now, g->shown);
		}
		if (g->flags & GUARD_PASSED)
			return 0;
	}
	return guard_strike(g, key, now);
}

/* The watched segment was lost without a mark, too: that tells nothing of marks. */
static __noinline int guard_doubt(struct pdm_guard *g, const struct pdm_key *key, __u64 now)
{
	struct pdm_path *path;

	g->watch_len = 0;
	if (g->flags & GUARD_PASSED)
		return 0;
	/* A flow that began so can't afford to lose more. */
	g->fallback = now + FALLBACK_MIN_NS;
	PDM_STAT_ADD(fallbacks, 1);
	path = path_make(key);
	if (path && !path->strikes)
		path->strikes = 1;
	return 0;
}

/* The watched segment has arrived. */
static __noinline int guard_arrived(struct pdm_guard *g, const struct pdm_key *key, __u64 now)
{
	bool first = g->flags & GUARD_WATCH_MARKED && !(g->flags & GUARD_PASSED);
	bool longer = g->watch_len > IPV6_MTU_MIN && g->watch_len > g->shown;
	struct pdm_path *path;

	if (g->flags & GUARD_WATCH_MARKED && now - g->arrived >= SHOW_NS)
		first = true;
	if (g->watch_len > g->shown)
		g->shown = g->watch_len;
	g->watch_len = 0;
	if (g->flags & GUARD_WATCH_MARKED) {
		g->flags |= GUARD_PASSED;
		g->strikes = 0;
		g->size_strikes = 0;
	}
	if (!first && !longer)
		return 0;
	path = path_make(key);
	if (!path)
		return 0;
	if (first) {
		g->arrived = now;
		path_passes(path, &path->acked, now);
	}
	if (longer && (g->shown >= path->shown || !is_recent(path->shown_at, now, PATH_LIFETIME))) {
		path->shown = g->shown;
		path->shown_at = now;
	}
	return 0;
}

static __always_inline bool is_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/*
 * An acknowledgment sent again reports data that came twice (RFC 2883): the peer
 * did not get it, or not in time.
 */
static __noinline int reports_duplicate(struct __sk_buff *skb, const struct packet *p,
					const struct pdm_guard *g, __u32 ack)
{
	struct {
		__u8 pad[2];
		__u8 kind;
		__u8 len;
		__be32 start;
		__be32 end;
	} sack;

	if (p->l4_len < g->tcp_header + sizeof(sack) ||
	    bpf_skb_load_bytes(skb, p->l4_offset + g->tcp_header, &sack, sizeof(sack)))
		return false;
	return sack.kind == TCP_OPTION_SACK && !is_after(bpf_ntohl(sack.end), ack);
}

/* Sequence numbers, from the packet. False: they can't be read. */
static __always_inline bool segment_of(struct __sk_buff *skb, const struct packet *p,
				       struct pdm_segment *seg)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 at = p->l4_offset;
	__be32 *word;

	if (at > HEADERS_MAX)
		return false;
	word = data + at + 4;
	if ((void *)(word + 2) > end)
		return false;
	seg->seq = bpf_ntohl(word[0]);
	seg->ack = bpf_ntohl(word[1]);
	seg->end = seg->seq + p->id.payload + !!(p->id.tcp_flags & (TCP_SYN | TCP_FIN));
	return true;
}

/* What is awaited: does the socket know that it arrived? */
static __noinline int guard_look(struct __sk_buff *skb, struct pdm_guard *g,
				 const struct pdm_key *key, __u64 now)
{
	struct bpf_sock *sk = skb->sk;
	struct bpf_tcp_sock *tcp = sk ? bpf_tcp_sock(sk) : NULL;

	if (tcp ? is_after(g->watch_end, tcp->snd_una) : now - g->watched <= WATCH_NS)
		return 0;
	if (g->flags & GUARD_LOST)
		guard_doubt(g, key, now);
	else if (g->flags & GUARD_RESENT)
		guard_missed(g, key, now);
	else
		guard_arrived(g, key, now);
	return 0;
}

/*
 * A segment is sent again, without a mark. Once this is acknowledged the mark was
 * the cause; if it is lost as well, the path was.
 */
static __noinline int guard_resent(struct pdm_guard *g, const struct pdm_segment *seg, __u64 now)
{
	__u32 len = seg->len + PDM_HEADER;

	if (!g->watch_len) {
		if (g->strikes || !(g->flags & GUARD_PASSED))
			return 0;
		/* It was marked, most likely, and not watched: not longer than any before. */
		g->watch_seq = seg->seq;
		g->watch_end = seg->end;
		g->watch_len = len > IPV6_MTU_MIN && len > g->shown ? IPV6_MTU_MIN : len;
		g->flags = (g->flags & ~(GUARD_RESENT | GUARD_LOST)) | GUARD_WATCH_MARKED;
	} else if (!is_after(g->watch_end, seg->seq) || !is_after(seg->end, g->watch_seq)) {
		return 0;
	}
	if (!(g->flags & GUARD_RESENT)) {
		g->flags |= GUARD_RESENT;
		g->watched = now;
	} else if (now - g->watched > STRIKE_GAP_NS) {
		g->flags |= GUARD_LOST;
		g->watched = now;
	}
	return 0;
}

/*
 * The first segment that is seen of a connection. Of one that was there before,
 * what its socket has sent already goes again, and is not marked.
 */
static __always_inline void guard_connect(struct __sk_buff *skb, const struct packet *p,
					  struct pdm_guard *g, const struct pdm_segment *seg)
{
	struct bpf_sock *sk = skb->sk;
	struct bpf_tcp_sock *tcp;

	g->watch_len = 0;
	g->iface = p->id.iface;
	g->flags |= GUARD_TCP;
	g->sent_end = seg->seq;
	g->last_ack = seg->ack - 1;
	g->tcp_header = p->l4_len;
	tcp = sk && !(p->id.tcp_flags & TCP_SYN) ? bpf_tcp_sock(sk) : NULL;
	if (tcp && is_after(tcp->snd_nxt, seg->seq))
		g->sent_end = tcp->snd_nxt;
	/* Of forwarded flows no acknowledgment is known; only what is sent again. */
	if (cfg_pdm_closed_domain && skb->ingress_ifindex)
		g->flags |= GUARD_PASSED;
}

/* A segment leaves that can't be marked: when it is sent again it is no new one. */
static __always_inline void guard_skip(struct __sk_buff *skb, const struct packet *p,
				       struct pdm_guard *g, struct pdm_segment *seg)
{
	if (p->id.proto == IPPROTO_TCP && g->flags & GUARD_TCP && segment_of(skb, p, seg) &&
	    is_after(seg->end, g->sent_end))
		g->sent_end = seg->end;
}

/* Follows what a TCP flow sends. MARK_OK, or why this segment is not marked. */
static __always_inline int guard_tcp(struct __sk_buff *skb, const struct packet *p,
				     struct pdm_guard *g, const struct pdm_key *key, __u64 now,
				     struct pdm_segment *seg)
{
	bool bare, again, ack_marked = g->flags & GUARD_ACK_MARKED;

	if (!segment_of(skb, p, seg))
		return PDM_CHAIN;
	bare = seg->seq == seg->end;
	/* A SYN other than that sent before begins another connection. */
	if (!(g->flags & GUARD_TCP) || (p->id.tcp_flags & TCP_SYN && seg->seq + 1 != g->sent_end))
		guard_connect(skb, p, g, seg);
	if (now - g->checked > CHECK_NS)
		g->checked = now;
	again = bare ? seg->ack == g->last_ack : is_after(g->sent_end, seg->seq);
	if (again && g->iface != p->id.iface)
		return PDM_RESENT;
	g->iface = p->id.iface;
	g->last_ack = seg->ack;
	g->flags &= ~GUARD_ACK_MARKED;
	if (is_after(seg->end, g->sent_end))
		g->sent_end = seg->end;
	/* SYN and SYN-ACK have options that no other segment has. */
	if (p->l4_len < g->tcp_header || p->id.tcp_flags & TCP_SYN)
		g->tcp_header = p->l4_len;
	if (again && bare) {
		if (ack_marked && reports_duplicate(skb, p, g, seg->ack))
			guard_strike(g, key, now);
		return now < g->fallback ? PDM_FALLBACK : PDM_DUP_ACK;
	}
	if (again) {
		seg->len = p->id.bytes;
		if (skb->gso_size)
			seg->len = p->l4_offset - p->l3_offset + p->l4_len + skb->gso_size;
		guard_resent(g, seg, now);
		return now < g->fallback ? PDM_FALLBACK : PDM_RESENT;
	}
	if (g->watch_len)
		guard_look(skb, g, key, now);
	if (now < g->fallback)
		return PDM_FALLBACK;
	if (!(g->flags & GUARD_PASSED) || g->strikes > 1) {
		if (bare || g->watch_len)
			return PDM_UNPROVEN;
		/* A lost SYN costs a second, a lost segment with data a round trip or two. */
		if (g->flags & GUARD_CAREFUL && p->id.tcp_flags & TCP_SYN)
			return PDM_UNPROVEN;
	}
	return MARK_OK;
}

/* The segment leaves. One is watched where it can show what is not known. */
static __always_inline void guard_sent(struct pdm_guard *g, const struct pdm_segment *seg,
				       bool marked, __u64 now)
{
	bool longer = seg->len > IPV6_MTU_MIN && seg->len > g->shown;
	bool known = g->flags & GUARD_PASSED && !g->strikes && now - g->arrived < SHOW_NS;

	if (seg->seq == seg->end) {
		if (marked)
			g->flags |= GUARD_ACK_MARKED;
		return;
	}
	if (g->watch_len || (!longer && (!marked || known)))
		return;
	g->flags &= ~(GUARD_RESENT | GUARD_LOST);
	g->watch_seq = seg->seq;
	g->watch_end = seg->end;
	g->watch_len = seg->len < 0xffff ? seg->len : 0xffff;
	g->watched = now;
	if (marked)
		g->flags |= GUARD_WATCH_MARKED;
	else
		g->flags &= ~GUARD_WATCH_MARKED;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Follows the segments of TCP, and what their acknowledgments show of the path.
 *
 * Input: a TCP segment on its way out, and its socket. Output: whether it may be
 * marked; strikes and arrivals for guard.h. Called by mark.h.
 */
#ifndef WAYMARK_MARK_TCP_H
#define WAYMARK_MARK_TCP_H

/* A flow that waits for others asks about them with its first segments, and then with one in so many. */
#define RISK_ASKS 16

/* How long a flow may take from asking until its mark leaves, on another processor than others that ask. */
#define RISK_CLAIM_NS 1000000ULL

/* A SYN carries no more data. */
#define SYN_DATA_MAX 0xffff

/* The watched segment arrived once it was sent again without a mark. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int guard_missed(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	bool longer;
	__u32 len;

	if (!g || !key)
		return 0;
	len = g->watch_len;
	longer = len > IPV6_MTU_MIN && len > g->shown;
	g->watch_len = 0;
	if (!(g->flags & GUARD_WATCH_MARKED))
		return 0;
	if (len > IPV6_MTU_MIN)
		guard_shrink(g, key, len - g->mark);
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

/* The watched segment was lost without a mark, too: that shows nothing about marks. */
static __noinline int guard_doubt(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	struct mark_path *service;

	g->watch_len = 0;
	if (g->flags & GUARD_PASSED)
		return 0;
	/* A flow that began so can't afford to lose more. */
	g->fallback = now + FALLBACK_MIN_NS;
	MARK_STAT_ADD(key->kind, fallbacks, 1);
	service = path_make(key, PATH_SERVICE);
	if (service && !service->strikes)
		service->strikes = 1;
	return 0;
}

/* The watched segment has arrived. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int guard_arrived(struct mark_guard *g, const struct mark_key *key, __u64 now)
{
	struct mark_path *path;
	bool first, longer;

	if (!g || !key)
		return 0;
	first = g->flags & GUARD_WATCH_MARKED && !(g->flags & GUARD_PASSED);
	longer = g->watch_len > IPV6_MTU_MIN && g->watch_len > g->shown;
	if (g->flags & GUARD_WATCH_MARKED && !is_recent(g->arrived, now, SHOW_NS))
		first = true;
	/* Firewalls that let a SYN or FIN pass may drop or reject data. */
	if (g->flags & GUARD_WATCH_EMPTY) {
		first = false;
		path_pool_ends_wait(key);
	}
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
	if (first) {
		g->arrived = now;
		path_passes(key, now);
	}
	path = longer ? path_make(key, PATH_LENGTHS) : NULL;
	if (path && (g->shown >= path->shown || !is_recent(path->shown_at, now, PATH_LIFETIME))) {
		path->shown = g->shown;
		path->shown_at = now;
	}
	return 0;
}

/*
 * Whether a segment may be marked though nobody knows if it arrives; or somebody
 * does by now. Asked for the first segments, and for few of those that follow.
 */
static __noinline int guard_may_risk(struct mark_guard *g, const struct mark_key *key, __u64 now,
				     bool syn)
{
	struct mark_path *service;
	__u64 quiet;

	g->unmarked = g->unmarked < 0xffff ? g->unmarked + 1 : RISK_ASKS;
	if (g->unmarked > RISK_ASKS && g->unmarked % RISK_ASKS)
		return false;
	service = path_make(key, PATH_SERVICE);
	if (!service)
		return true;
	if (path_takes(service, now)) {
		g->flags |= GUARD_PASSED;
		return true;
	}
	quiet = service->quiet;
	if (now < quiet || now < service->blocked)
		return false;
	/* What was never heard of again was rejected, perhaps: that must not end a connection in use. */
	if (!syn && service->backoff && !service->strikes)
		return false;
	/* Of flows that ask on several processors at once, one may. */
	return __sync_val_compare_and_swap(&service->quiet, quiet, now + RISK_CLAIM_NS) == quiet;
}

/* A segment leaves with a mark, and nobody knows if it arrives. */
static __noinline int guard_risk(const struct mark_key *key, __u64 now)
{
	struct mark_path *service = path_make(key, PATH_SERVICE);

	if (!service)
		return 0;
	service->quiet = now + (FALLBACK_MIN_NS << (service->backoff & 3) * 2);
	service->backoff += service->backoff < 3;
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
					const struct mark_guard *g, __u32 ack)
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
				       struct mark_segment *seg)
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
	seg->empty = !p->id.payload;
	return true;
}

/*
 * What is awaited: does the socket know that it arrived? One that closed first and
 * waits (TIME_WAIT) is no such socket any more, but all that it sent has arrived.
 */
static __noinline int guard_look(struct __sk_buff *skb, struct mark_guard *g,
				 const struct mark_key *key, __u64 now, __u8 flags)
{
	struct bpf_sock *sk = skb->sk;
	bool closed = sk && (sk->state == BPF_TCP_TIME_WAIT || sk->state == BPF_TCP_CLOSE);
	struct bpf_tcp_sock *tcp = sk && !closed ? bpf_tcp_sock(sk) : NULL;
	bool acks = !tcp && (flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) == TCP_ACK;
	/* Nothing else follows a FIN, nor a SYN before that is acknowledged. */
	bool waits = acks && g->flags & (GUARD_FIN | GUARD_WATCH_EMPTY);

	if (tcp ? is_after(g->watch_end, tcp->snd_una) : !waits && now - g->watched <= WATCH_NS)
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
static __noinline int guard_resent(struct mark_guard *g, const struct mark_segment *seg, __u64 now)
{
	__u32 len = seg->len + g->mark;

	if (!g->watch_len) {
		if (g->strikes || (g->flags & (GUARD_PASSED | GUARD_LIMITED)) != GUARD_PASSED)
			return 0;
		/* Of a flow without a limit it was marked, most likely, and is known to fit. */
		g->watch_seq = seg->seq;
		g->watch_end = seg->end;
		g->watch_len = len > IPV6_MTU_MIN && len > g->shown ? IPV6_MTU_MIN : len;
		g->flags = (g->flags & ~(GUARD_RESENT | GUARD_LOST | GUARD_WATCH_EMPTY)) |
			   GUARD_WATCH_MARKED;
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

/* The FIN that answers another: nothing follows that could show whether it arrived. */
static __always_inline bool is_last(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_sock *sk = skb->sk;

	return p->id.tcp_flags & TCP_FIN && sk && sk->state == BPF_TCP_LAST_ACK;
}

/*
 * The first segment that is seen of a connection. Of one that was there before,
 * what its socket has sent already goes again, and is not marked.
 */
static __always_inline void guard_connect(struct __sk_buff *skb, const struct packet *p,
					  struct mark_guard *g, const struct mark_segment *seg,
					  bool closed)
{
	struct bpf_sock *sk = skb->sk;
	struct bpf_tcp_sock *tcp;

	/* What arrived of the connection before with these ports may be long ago. */
	if (g->flags & GUARD_TCP && p->id.tcp_flags & TCP_SYN) {
		g->flags &= ~GUARD_PASSED;
		g->unmarked = 0;
	}
	g->watch_len = 0;
	g->iface = p->id.iface;
	g->flags = (g->flags & ~(GUARD_LIMITED | GUARD_FIN)) | GUARD_TCP;
	g->sent_end = seg->seq;
	g->last_ack = seg->ack - 1;
	g->tcp_header = p->l4_len;
	tcp = sk && !(p->id.tcp_flags & TCP_SYN) ? bpf_tcp_sock(sk) : NULL;
	if (tcp && is_after(tcp->snd_nxt, seg->seq))
		g->sent_end = tcp->snd_nxt;
	/* Of forwarded flows no acknowledgment is known; only what is sent again. */
	if (closed && skb->ingress_ifindex)
		g->flags |= GUARD_PASSED;
}

/* A segment leaves that can't be marked: when it is sent again it is no new one. */
static __always_inline void guard_skip(struct __sk_buff *skb, const struct packet *p,
				       struct mark_guard *g, struct mark_segment *seg)
{
	if (p->id.proto == IPPROTO_TCP && g->flags & GUARD_TCP && segment_of(skb, p, seg) &&
	    is_after(seg->end, g->sent_end))
		g->sent_end = seg->end;
}

/* Follows what a TCP flow sends. MARK_OK, or why this segment is not marked. */
static __always_inline int guard_tcp(struct __sk_buff *skb, const struct packet *p,
				     struct mark_guard *g, const struct mark_key *key, __u64 now,
				     struct mark_segment *seg, bool closed)
{
	bool bare, again, ack_marked = g->flags & GUARD_ACK_MARKED;

	if (!segment_of(skb, p, seg))
		return MARK_CHAIN;
	bare = seg->seq == seg->end;
	/*
	 * A SYN other than that sent before begins another connection. One with data (Fast
	 * Open) is sent again without.
	 */
	if (!(g->flags & GUARD_TCP) ||
	    (p->id.tcp_flags & TCP_SYN && g->sent_end - seg->seq - 1 > SYN_DATA_MAX))
		guard_connect(skb, p, g, seg, closed);
	if (now - g->checked > CHECK_NS)
		g->checked = now;
	again = bare ? seg->ack == g->last_ack : is_after(g->sent_end, seg->seq);
	if (again && g->iface != p->id.iface)
		return MARK_RESENT;
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
		return now < g->fallback ? MARK_FALLBACK : MARK_DUP_ACK;
	}
	if (again) {
		seg->len = p->id.bytes;
		if (skb->gso_size)
			seg->len = p->l4_offset - p->l3_offset + p->l4_len + skb->gso_size;
		guard_resent(g, seg, now);
		return now < g->fallback ? MARK_FALLBACK : MARK_RESENT;
	}
	if (g->watch_len)
		guard_look(skb, g, key, now, p->id.tcp_flags);
	if (p->id.tcp_flags & TCP_FIN)
		g->flags |= GUARD_FIN;
	if (now < g->fallback)
		return MARK_FALLBACK;
	if (guard_risks(g)) {
		if (bare || g->watch_len || is_last(skb, p))
			return MARK_UNPROVEN;
		/* A lost SYN costs a second, a lost segment with data a round trip or two. */
		if (g->flags & GUARD_CAREFUL && p->id.tcp_flags & TCP_SYN)
			return MARK_UNPROVEN;
		if (!(g->flags & GUARD_PASSED) &&
		    !guard_may_risk(g, key, now, p->id.tcp_flags & TCP_SYN))
			return MARK_UNPROVEN;
	}
	return MARK_OK;
}

/* The segment leaves. One is watched where it can show what is not known. */
static __always_inline void guard_sent(struct mark_guard *g, const struct mark_segment *seg,
				       bool marked, __u64 now)
{
	bool longer = seg->len > IPV6_MTU_MIN && seg->len > g->shown;
	bool known = (g->flags & (GUARD_PASSED | GUARD_LIMITED)) == GUARD_PASSED && !g->strikes &&
		     is_recent(g->arrived, now, SHOW_NS);

	if (seg->seq == seg->end) {
		if (marked)
			g->flags |= GUARD_ACK_MARKED;
		return;
	}
	if (g->watch_len || (!longer && (!marked || known)))
		return;
	g->flags &= ~(GUARD_RESENT | GUARD_LOST | GUARD_WATCH_EMPTY);
	g->watch_seq = seg->seq;
	g->watch_end = seg->end;
	g->watch_len = seg->len < 0xffff ? seg->len : 0xffff;
	g->watched = now;
	g->mark = seg->mark;
	if (seg->empty)
		g->flags |= GUARD_WATCH_EMPTY;
	if (marked)
		g->flags |= GUARD_WATCH_MARKED;
	else
		g->flags &= ~GUARD_WATCH_MARKED;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Transit at the interface where a packet arrives: this node's data go into each trace of a
 * namespace that it knows.
 *
 * Input: a frame, at XDP or at tc ingress. Output: the same frame, of the same length, and a
 * verdict. What only the egress knows is "not available" until egress.h writes it.
 */
#ifndef WAYMARK_IOAM_TRANSIT_H
#define WAYMARK_IOAM_TRANSIT_H

/* Where the IPv6 header begins; NULL: there is none. */
static __always_inline void *ioam_link(const struct frame *f, __u32 *l3)
{
	struct packet unused = {};
	struct cursor c = { .frame = *f, .pos = f->data }; /* its length takes a call */
	__be16 proto;

	*l3 = 0;
	if (cfg_features & FEATURE_NO_LINK)
		return f->data;
	if (parse_link(&c, &unused, &proto) != PARSE_OK || proto != bpf_htons(ETH_P_IPV6))
		return NULL;
	*l3 = offset_of(&c);
	return c.pos;
}

/* What follows the IPv6 header; IPPROTO_NONE where there is none. */
static __always_inline __u8 ioam_next_header(frame_ctx *ctx, __u32 *l3)
{
	struct frame f = frame_of(ctx);
	struct ipv6hdr *ip = ioam_link(&f, l3);

	if (!ip)
		return IPPROTO_NONE;
	if ((void *)(ip + 1) > f.end) {
		if (frame_pull(ctx, *l3 + sizeof(*ip)))
			return IPPROTO_NONE;
		f = frame_of(ctx);
		ip = ioam_link(&f, l3);
		if (!ip || (void *)(ip + 1) > f.end)
			return IPPROTO_NONE;
	}
	return ip->version == 6 ? ip->nexthdr : IPPROTO_NONE;
}

/*
 * Whether a packet has a Hop-by-Hop header, which is always the first (RFC 8200 section 4.1).
 * Most have none, so this is all they cost.
 */
static __always_inline bool ioam_has_options(frame_ctx *ctx, __u32 *l3)
{
	return ioam_next_header(ctx, l3) == IPPROTO_HOPOPTS;
}

/* A walk along the options of a Hop-by-Hop header. */
struct ioam_options {
	__u32 at;
	__u32 end;
	__u32 next; /* header, behind it */
};

/* Whether the header is in the packet. */
static __always_inline bool ioam_options(frame_ctx *ctx, __u32 l3, struct ioam_options *o,
					 __u8 *hop_limit)
{
	struct {
		__be16 payload_len; /* from here on, of the IPv6 header: the stack is short */
		__u8 nexthdr;
		__u8 hop_limit;
		__u8 addresses[2 * sizeof(struct in6_addr)];
		__u8 next;
		__u8 len;
	} headers;
	__u32 size;

	if (frame_load(ctx, l3 + offsetof(struct ipv6hdr, payload_len), &headers, sizeof(headers)))
		return false;
	*hop_limit = headers.hop_limit;
	size = (headers.len + 1) * 8;
	o->at = l3 + sizeof(struct ipv6hdr) + 2;
	o->end = l3 + sizeof(struct ipv6hdr) + size;
	o->next = headers.next;
	return !headers.payload_len || bpf_ntohs(headers.payload_len) >= size;
}

/* Takes the next option; false at the end of the header. changes: nodes on the path fill it. */
static __always_inline bool ioam_next(frame_ctx *ctx, struct ioam_options *o, struct ioam_work *w,
				      bool *changes)
{
	__u32 size;
	__u8 tlv[2];

	if (o->at >= o->end)
		return false;
	size = option_size(ctx, o->at, o->end, tlv);
	if (!size)
		return false;
	*changes = tlv[0] == IOAM_OPTION_CHANGES;
	w->at = o->at;
	w->len = tlv[1];
	w->space = 0;
	o->at += size;
	return true;
}

/* Whether the option at w->at is one for direct export. */
static __always_inline bool ioam_is_direct(frame_ctx *ctx, const struct ioam_work *w)
{
	struct {
		__u8 option, len, reserved, type;
	} o;

	return w->len >= 2 && !frame_load(ctx, w->at, &o, sizeof(o)) &&
	       o.option == IOAM_OPTION_STAYS && o.type == IOAM_EXPORT;
}

/*
 * Fills the checksum complement, so that no sum of 16-bit words over the option changes (RFC 9197
 * section 4.4.2.8). False where the bytes that are replaced cannot be read.
 */
static __always_inline bool ioam_neutral(frame_ctx *ctx, struct ioam_work *w,
					 const struct ioam_namespace *ns, __u32 fields, __u32 to,
					 __u32 words, __u32 n)
{
	__u32 at = ioam_before(fields, 7), bytes = words * 4, after;

	if (bytes < 4 || bytes > IOAM_OLD_MAX || n < 4 || n > IOAM_NODE_MAX ||
	    frame_load(ctx, to, w->old, ioam_bounded(bytes, IOAM_OLD_MAX)))
		return false;
	after = ioam_difference(w->old, bytes, w->data, n);
	if (fields & IOAM_SNAPSHOT)
		after += ns->schema_sum;
	if (at <= IOAM_NODE_MAX - 4) /* RemainingLen has shrunk by the words */
		w->data[at / 4] = bpf_htonl(ioam_complement(words, after));
	return true;
}

/* Sets Overflow in the trace at w->at. */
static __always_inline int ioam_overflow(frame_ctx *ctx, const struct ioam_work *w, __u32 lengths)
{
	__be16 now = bpf_htons(lengths | IOAM_OVERFLOW);

	return frame_store(ctx, w->at + offsetof(struct ioam_trace, lengths), &now, sizeof(now))
		       ? IOAM_UNREADABLE
		       : IOAM_FULL;
}

/*
 * An incremental trace, which grow.h makes longer where the packet leaves: IOAM_GROWS; or a reason.
 * Only those of namespaces that grow are checked.
 */
__feature(FEATURE_IOAM) __noinline int ioam_transit_incremental(frame_ctx *ctx, struct ioam_work *w)
{
	const struct ioam_namespace *ns;
	__u32 lengths, words, fields, role;
	struct ioam_trace t;
	__be16 space;

	if (!w || w->len < IOAM_BODY - 2 + sizeof(space))
		return IOAM_PASS;
	if (frame_load(ctx, w->at + IOAM_BODY, &space, sizeof(space)))
		return IOAM_UNREADABLE;
	w->space = bpf_ntohs(space);
	ns = ioam_namespace(w->copy, w->space);
	if (!ns)
		return IOAM_NAMESPACE_UNKNOWN;
	role = ioam_role(ctx, w, w->space);
	if (!(role & IOAM_ROLE_INGRESS))
		return role || !w->port.border ? IOAM_NO_ROLE : IOAM_PASS;
	if (!ns->incremental)
		return ns->remove ? IOAM_PASS : IOAM_GROW_OFF;
	if (w->len < IOAM_HEADER - 2)
		return IOAM_TRUNCATED;
	if (frame_load(ctx, w->at, &t, sizeof(t)))
		return IOAM_UNREADABLE;
	lengths = bpf_ntohs(t.lengths);
	fields = bpf_ntohl(t.fields);
	words = ioam_node_length(fields);
	if (lengths >> IOAM_NODELEN_SHIFT != words)
		return IOAM_NODE_LENGTH;
	if (lengths & IOAM_OVERFLOW)
		return IOAM_OVERFLOWED;
	if (fields & IOAM_SNAPSHOT)
		words += ns->snapshot;
	if (!(lengths & IOAM_REMAINING) || words > (lengths & IOAM_REMAINING) ||
	    w->len + words * 4 > 255)
		return ioam_overflow(ctx, w, lengths);
	if (fields & (IOAM_TIMES | IOAM_BIT(4)))
		ioam_arrived(ctx, w);
	return cfg_ioam_stamp ? IOAM_GROWS : IOAM_GROW_OFF;
}

/*
 * One option: checks in the order of RFC 9197 and of Linux, then this node's data. An enum
 * ioam_reason, or IOAM_PASS for options that are not a pre-allocated trace.
 */
__feature(FEATURE_IOAM) __noinline int ioam_transit_option(frame_ctx *ctx, struct ioam_work *w)
{
	const struct ioam_namespace *ns;
	struct ioam_schema *schema;
	__u32 lengths, remaining, words, n, fields, to, role;
	struct ioam_trace t;
	__u16 space;
	__be16 now;

	if (!w)
		return IOAM_UNREADABLE;
	if (w->at - w->l3 & 3)
		return IOAM_MISALIGNED;
	if (!w->port.role && !w->port.exceptions)
		return IOAM_PASS;
	if (w->len < 2)
		return IOAM_TRUNCATED;
	if (frame_load(ctx, w->at, &t, 4))
		return IOAM_UNREADABLE;
	if (t.type == IOAM_INCREMENTAL)
		return ioam_transit_incremental(ctx, w);
	if (t.type != IOAM_PREALLOCATED)
		return t.type == IOAM_PROOF ? ioam_transit_proof(ctx, w) : IOAM_PASS;
	if (w->len < IOAM_HEADER - 2)
		return IOAM_TRUNCATED;
	if (frame_load(ctx, w->at, &t, sizeof(t)))
		return IOAM_UNREADABLE;
	lengths = bpf_ntohs(t.lengths);
	fields = bpf_ntohl(t.fields);
	space = bpf_ntohs(t.space);
	remaining = lengths & IOAM_REMAINING;
	if (w->len < IOAM_HEADER - 2 + remaining * 4)
		return IOAM_TRUNCATED;
	words = ioam_node_length(fields);
	if (lengths >> IOAM_NODELEN_SHIFT != words)
		return IOAM_NODE_LENGTH;
	w->space = space;
	ns = ioam_namespace(w->copy, space);
	if (!ns)
		return IOAM_NAMESPACE_UNKNOWN;
	role = ioam_role(ctx, w, space);
	if (!(role & IOAM_ROLE_INGRESS))
		return role || !w->port.border ? IOAM_NO_ROLE : IOAM_PASS; /* border.h counts it */
	if (lengths & IOAM_OVERFLOW)
		return IOAM_OVERFLOWED;
	if (fields & IOAM_SNAPSHOT)
		words += ns->snapshot;
	if (!remaining || words > remaining)
		return ioam_overflow(ctx, w, lengths);
	to = w->at + IOAM_HEADER + (remaining - words) * 4;
	n = ioam_fill(ctx, w, ns, fields);
	if (fields & IOAM_CHECKSUM && !ioam_neutral(ctx, w, ns, fields, to, words, n))
		return IOAM_UNREADABLE;
	/* A trace may ask for nothing. */
	if (n >= 4 && n <= IOAM_NODE_MAX &&
	    frame_store(ctx, to, w->data, ioam_bounded(n, IOAM_OLD_MAX)))
		return IOAM_UNREADABLE;
	if (fields & IOAM_SNAPSHOT && ns->snapshot > 1) {
		__u32 index = ns->schema, bytes = (ns->snapshot - 1) * 4;

		schema = bpf_map_lookup_elem(&ioam_schemas, &index);
		if (!schema || bytes > IOAM_SCHEMA_MAX ||
		    frame_store(ctx, to + n, schema->data, ioam_bounded(bytes, IOAM_OLD_MAX)))
			return IOAM_UNREADABLE;
	}
	now = bpf_htons(lengths - words);
	if (frame_store(ctx, w->at + offsetof(struct ioam_trace, lengths), &now, sizeof(now)))
		return IOAM_UNREADABLE;
	ioam_remember(ctx, w, ns, fields, n);
	return IOAM_WRITTEN;
}

/*
 * All options of a packet that arrives. IOAM_PASS, or the reason to drop it. w->written: the packet
 * has data of this node.
 */
__feature(FEATURE_IOAM) __noinline int ioam_transit(frame_ctx *ctx, struct ioam_work *w)
{
	struct ioam_options o;
	bool changes;

	if (!w || !ioam_options(ctx, w->l3, &o, &w->hop_limit))
		return IOAM_PASS;
	w->hop_limit--;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_OPTIONS_MAX && ioam_next(ctx, &o, w, &changes); i++) {
		int rc = changes ? ioam_transit_option(ctx, w) : IOAM_PASS;

		if (rc == IOAM_PASS)
			continue;
		if (rc == IOAM_GROWS) {
			w->written++; /* the egress learns the receive time */
			continue;
		}
		if (rc == IOAM_WRITTEN) {
			w->written++;
			ioam_stat(IOAM_WRITTEN);
			continue;
		}
		ioam_count(ctx, DIRECTION_INGRESS, rc, w->space);
		if (rc >= IOAM_FIRST_DROPPED)
			return rc;
	}
	return IOAM_PASS;
}

#endif

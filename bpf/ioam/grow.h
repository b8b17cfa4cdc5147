/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Incremental traces grow by this node's data (RFC 9197 section 4.4).
 *
 * Input: a packet with such a trace of a namespace that grows. Output: at ingress, whether it is to grow;
 * at egress, the packet with a longer option, whose newest node data are first, or with Overflow set in it and a
 * reason counted. Called by transit.h and egress.h.
 *
 * A packet grows where it leaves, because only there the length is known that the link takes. The options
 * behind the trace move by a multiple of eight bytes, so that they keep their alignment; padding behind the trace takes up
 * the difference.
 */
#ifndef WAYMARK_IOAM_GROW_H
#define WAYMARK_IOAM_GROW_H

#define IOAM_GROW_HEADER 2048 /* bytes of the longest header */
#define IOAM_GROW_PADS 8 /* options of padding behind a trace, and ... */
#define IOAM_GROW_PADDING 128 /* ... their bytes, that are replaced */
#define IOAM_GROW_OPTION 257 /* bytes of the longest option */

/* Memory for one trace. Offsets are those of the packet before it grows. */
struct ioam_growth {
	__u8 front[IOAM_GROW_HEADER]; /* the header, up to the node data list */
	__u8 list[IOAM_OLD_MAX];
	__u8 padding[IOAM_GROW_PADDING + IOAM_UNIT];
	struct ioam_trace trace;
	__u32 size; /* of the header */
	__u32 fields;
	__u32 bytes; /* by which the option grows ... */
	__u32 grown; /* ... and by which the packet does */
	__u32 pad; /* bytes of padding behind the option */
	struct chain chain; /* behind this header */
};

/* Sets a field of the node data in w->data. */
static __always_inline void ioam_set(struct ioam_work *w, __u32 at, __u32 value)
{
	if (at <= IOAM_NODE_MAX - 4)
		w->data[at / 4] = bpf_htonl(value);
}

/* What only the interface knows where a packet leaves, into w->data. */
static __always_inline void ioam_set_egress(frame_ctx *ctx, struct ioam_work *w, __u32 fields)
{
	struct ioam_queue q;

	if (fields & IOAM_BIT(1)) {
		__u32 at = ioam_before(fields, 1);

		if (at <= IOAM_NODE_MAX - 4)
			((__be16 *)w->data)[at / 2 + 1] = bpf_htons(w->port.id);
	}
	if (fields & IOAM_BIT(4))
		ioam_set(w, ioam_before(fields, 4), ioam_delay(w->received));
	if (fields & IOAM_BIT(9))
		ioam_set(w, ioam_before(fields, 9) + 4, w->port.wide);
	if (!(fields & IOAM_QUEUES))
		return;
	ioam_queue_of(ctx, &q);
	if (fields & IOAM_BIT(6))
		ioam_set(w, ioam_before(fields, 6), q.depth);
	if (fields & IOAM_BIT(11))
		ioam_set(w, ioam_before(fields, 11), q.occupancy);
}

/* Where the packet was received; false: at no interface of the node. */
static __always_inline bool ioam_grow_from(struct __sk_buff *skb, struct ioam_work *w)
{
	__u32 iface = cfg_iface + skb->ingress_ifindex, *role;
	struct ioam_iface *known = bpf_map_lookup_elem(&ioam_ifaces, &iface);
	struct ioam_role_key key = { .iface = iface, .space = w->space, .copy = w->copy };

	if (!known)
		return false;
	w->from = known->copy[w->copy & 1];
	role = w->from.exceptions ? bpf_map_lookup_elem(&ioam_roles, &key) : NULL;
	return (role ? *role : w->from.role) & IOAM_ROLE_INGRESS;
}

/* Counts the padding behind the option, which ends in the header at `end`. Verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_grow_padding(struct __sk_buff *skb, struct ioam_growth *g, __u32 at, __u32 end)
{
	__u32 size;
	__u8 tlv[2];

	if (!g)
		return 0;
	g->pad = 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_GROW_PADS; i++) {
		__u32 pad = WHOLE(g->pad);

		if (at + pad >= end)
			break;
		size = option_size(skb, at + pad, end, tlv);
		if (!size || tlv[0] > OPTION_PADN || pad + size > IOAM_GROW_PADDING)
			break;
		WHOLE(g->pad) = pad + size;
	}
	return 0;
}

/* Whether headers behind this one keep the packet from growing, or cannot be read. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_grow_fixed(struct __sk_buff *skb, struct ioam_growth *g)
{
	if (!g)
		return true;
#pragma clang loop unroll(disable)
	for (int i = 0; i < EXT_HEADERS_MAX; i++) {
		__u8 proto = WHOLE(g->chain.next);

		if (!is_extension(proto, true))
			return false;
		if (proto == IPPROTO_AH || proto == IPPROTO_FRAGMENT || proto > 63 ||
		    pass_extension(skb, &g->chain) > PARSE_OK)
			return true;
	}
	return true;
}

/* Whether the packet may be longer by g->grown: IOAM_PASS, or a reason. Verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_grow_fits(struct __sk_buff *skb, struct ioam_work *w, struct ioam_growth *g)
{
	struct gso gso = {};
	__be16 payload;
	__u32 len, mtu = 0;

	if (!w || !g)
		return IOAM_NOT_GROWN;
	if (!g->grown)
		return IOAM_PASS;
	if (bpf_skb_load_bytes(skb, w->l3 + offsetof(struct ipv6hdr, payload_len), &payload,
			       sizeof(payload)) ||
	    !payload || bpf_ntohs(payload) + g->grown > 0xffff ||
	    g->size + g->grown > IOAM_GROW_HEADER || space_framed(skb, w->l3) != SPACE_OK)
		return IOAM_NOT_GROWN;
	len = sizeof(struct ipv6hdr) + bpf_ntohs(payload);
	g->chain.offset = w->l3 + sizeof(struct ipv6hdr) + g->size;
	g->chain.ip_end = w->l3 + len;
	g->chain.ipv6 = true;
	if (is_extension(g->chain.next, true) && ioam_grow_fixed(skb, g))
		return IOAM_NOT_GROWN;
	if (skb->gso_size) {
		gso_of(skb, &gso);
		/* As in ioam_wrap_fit(). */
		if (gso.header < w->l3 + sizeof(struct ipv6hdr) ||
		    (!(gso.type & GSO_TCP) &&
		     (!(gso.type & GSO_UDP) || !is_checksum_partial(skb, gso.header - 2))))
			return IOAM_GROW_BURST;
		if (space_bursts(skb, g->grown))
			return IOAM_NOT_GROWN;
		len = gso.header - w->l3 + skb->gso_size;
	}
	if (bpf_check_mtu(skb, 0, &mtu, 0, 0) < 0 || len + g->grown > mtu)
		return IOAM_GROW_MTU;
	return IOAM_PASS;
}

/* This node's data, into ioam_work.data. Returns their bytes, without a schema's. */
__feature(FEATURE_IOAM) __noinline
	int ioam_grow_fill(struct __sk_buff *skb, struct ioam_work *w, const struct ioam_growth *g)
{
	const struct ioam_namespace *ns;
	struct ioam_port out;
	__u32 n, at, after;

	if (!w || !g)
		return 0;
	ns = ioam_namespace(w->copy, w->space);
	if (!ns)
		return 0;
	out = w->port;
	w->port = w->from;
	n = ioam_fill(skb, w, ns, g->fields);
	w->port = out;
	if (ioam_role(skb, w, w->space) & IOAM_ROLE_EGRESS)
		ioam_set_egress(skb, w, g->fields);
	at = ioam_before(g->fields, 7);
	if (g->fields & IOAM_CHECKSUM && n >= 4 && n <= IOAM_NODE_MAX) {
		after = ioam_sum(w->data, n) + g->bytes; /* the option's length changes, too */
		if (g->fields & IOAM_SNAPSHOT)
			after += ns->schema_sum;
		ioam_set(w, at, ioam_complement(g->bytes / 4, after));
	}
	return n;
}

/* Writes node data of n bytes and a schema in front of the others. False where that is impossible. */
static __always_inline bool ioam_grow_put(struct __sk_buff *skb, struct ioam_work *w,
					  const struct ioam_namespace *ns, __u32 n, __u32 bytes)
{
	__u32 at = w->at + IOAM_HEADER, index = ns->schema;
	struct ioam_schema *schema;

	if (n >= 4 && n <= IOAM_NODE_MAX &&
	    !space_put(skb, at, w->data, ioam_bounded(n, IOAM_OLD_MAX)))
		return false;
	if (bytes == n)
		return true;
	bytes -= n;
	schema = bpf_map_lookup_elem(&ioam_schemas, &index);
	return schema && bytes <= IOAM_SCHEMA_MAX &&
	       space_put(skb, at + n, schema->data, ioam_bounded(bytes, IOAM_OLD_MAX));
}

/* The padding that replaces the one that was there. */
static __always_inline bool ioam_grow_pad(struct __sk_buff *skb, struct ioam_growth *g, __u32 at)
{
	__u32 n = g->pad + g->grown - g->bytes;

	if (!n)
		return true;
	g->padding[0] = n > 1 ? OPTION_PADN : OPTION_PAD1;
	g->padding[1] = n - 2;
	return n <= IOAM_GROW_PADDING &&
	       space_put(skb, at, g->padding, ioam_bounded(n, IOAM_GROW_PADDING));
}

/*
 * Makes the option longer, by node data of n bytes and a schema. IOAM_WRITTEN; IOAM_NOT_GROWN: the packet is as it was; IOAM_BROKEN. Verified
 * alone.
 */
__feature(FEATURE_IOAM) __noinline int ioam_grow_write(struct __sk_buff *skb, struct ioam_work *w,
						       struct ioam_growth *g, __u32 n)
{
	__u32 header, front, list;
	const struct ioam_namespace *ns;
	struct space gap;
	__u8 units;

	if (!w || !g)
		return IOAM_NOT_GROWN;
	header = w->l3 + sizeof(struct ipv6hdr);
	front = w->at + IOAM_HEADER - header;
	list = w->len + 2 - IOAM_HEADER;
	ns = ioam_namespace(w->copy, w->space);
	if (!ns || front > IOAM_GROW_HEADER || list > IOAM_OLD_MAX ||
	    bpf_skb_pull_data(skb, header + g->size) ||
	    bpf_skb_load_bytes(skb, header, g->front, ioam_bounded(front, IOAM_GROW_HEADER)) ||
	    (list && bpf_skb_load_bytes(skb, w->at + IOAM_HEADER, g->list,
					ioam_bounded(list, IOAM_OLD_MAX))))
		return IOAM_NOT_GROWN;
	if (g->grown) {
		int rc = space_make(skb, w->l3, g->grown, FIT_GROW, &gap);

		if (rc != SPACE_OK)
			return rc == SPACE_BROKEN ? IOAM_BROKEN : IOAM_NOT_GROWN;
		units = (g->size + g->grown) / IOAM_UNIT - 1;
		if (!space_put(skb, header, g->front, ioam_bounded(front, IOAM_GROW_HEADER)) ||
		    !space_put(skb, header + 1, &units, sizeof(units)))
			return IOAM_BROKEN;
	}
	g->trace.len += g->bytes;
	g->trace.lengths = bpf_htons(bpf_ntohs(g->trace.lengths) - g->bytes / 4);
	if (!space_put(skb, w->at, &g->trace, sizeof(g->trace)) ||
	    !ioam_grow_put(skb, w, ns, n, g->bytes))
		return IOAM_BROKEN;
	if (g->bytes == g->grown)
		return IOAM_WRITTEN; /* all else is where it should be */
	if ((list && !space_put(skb, w->at + IOAM_HEADER + g->bytes, g->list,
				ioam_bounded(list, IOAM_OLD_MAX))) ||
	    !ioam_grow_pad(skb, g, w->at + IOAM_HEADER + g->bytes + list))
		return IOAM_BROKEN;
	return IOAM_WRITTEN;
}

/* Reads the trace at w->at, of a packet that leaves. IOAM_WRITTEN: it grows; or IOAM_PASS. */
static __always_inline int ioam_grow_read(struct __sk_buff *skb, struct ioam_work *w,
					  struct ioam_growth *g)
{
	const struct ioam_namespace *ns;
	__u32 lengths;
	__u8 header[2];

	if (w->len < IOAM_HEADER - 2 ||
	    bpf_skb_load_bytes(skb, w->at, &g->trace, sizeof(g->trace)) ||
	    bpf_skb_load_bytes(skb, w->l3 + sizeof(struct ipv6hdr), header, sizeof(header)))
		return IOAM_PASS;
	w->space = bpf_ntohs(g->trace.space);
	ns = ioam_namespace(w->copy, w->space);
	lengths = bpf_ntohs(g->trace.lengths);
	if (!ns || !ns->incremental || ns->remove || lengths & IOAM_OVERFLOW ||
	    !ioam_grow_from(skb, w))
		return IOAM_PASS;
	g->chain.next = header[0];
	g->size = (header[1] + 1) * IOAM_UNIT;
	g->fields = bpf_ntohl(g->trace.fields);
	g->bytes = lengths >> IOAM_NODELEN_SHIFT;
	if (g->bytes != ioam_node_length(g->fields) ||
	    /* The configuration has changed on the packet's way through the node. */
	    (w->received == IOAM_STAMP_NO_TIME && g->fields & (IOAM_TIMES | IOAM_BIT(4))))
		return IOAM_PASS;
	if (g->fields & IOAM_SNAPSHOT)
		g->bytes += ns->snapshot;
	g->bytes *= 4;
	if (g->bytes > (lengths & IOAM_REMAINING) * 4 || w->len + 2 + g->bytes > IOAM_GROW_OPTION)
		return IOAM_PASS;
	return IOAM_WRITTEN;
}

/*
 * The trace at w->at, of a packet that leaves, in a header that ends at `end`. IOAM_WRITTEN; IOAM_PASS; IOAM_BROKEN:
 * the packet is to be dropped. w->grown, w->behind: by how much the header has grown, and where the next option is.
 */
__feature(FEATURE_IOAM) __noinline
	int ioam_grow(struct __sk_buff *skb, struct ioam_work *w, __u32 end)
{
	__u32 behind;
	struct ioam_growth *g = SCRATCH(struct ioam_growth, ioam_growth);
	__be16 lengths;
	int rc;

	if (!w || !g)
		return IOAM_PASS;
	behind = w->at + 2 + w->len;
	w->grown = 0;
	w->behind = behind;
	rc = ioam_grow_read(skb, w, g);
	if (rc != IOAM_WRITTEN)
		return rc;
	ioam_grow_padding(skb, g, behind, end);
	g->grown = 0;
	if (g->pad < g->bytes)
		g->grown = (g->bytes - g->pad + IOAM_UNIT - 1) & ~(IOAM_UNIT - 1);
	rc = ioam_grow_fits(skb, w, g);
	if (rc == IOAM_PASS)
		rc = ioam_grow_write(skb, w, g, ioam_grow_fill(skb, w, g));
	if (rc == IOAM_WRITTEN) {
		w->grown = g->grown;
		w->behind = behind + g->pad + g->grown;
		return IOAM_WRITTEN;
	}
	ioam_count(skb, DIRECTION_EGRESS, rc, w->space);
	if (rc == IOAM_BROKEN)
		return rc;
	lengths = g->trace.lengths | bpf_htons(IOAM_OVERFLOW);
	frame_store(skb, w->at + offsetof(struct ioam_trace, lengths), &lengths, sizeof(lengths));
	return IOAM_PASS;
}

#endif

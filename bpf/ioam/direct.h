/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Direct export (RFC 9326): a packet asks nodes to export what they would add to a trace.
 *
 * Input: a packet with direct export options, at tc ingress and, if it is forwarded, at tc egress. Output: a
 * record of a few of these packets in a ring, and a count of all others by reason; the packet is only
 * read. Called by ingress.h and egress.h.
 *
 * A record that lacks what only the egress knows waits, and is found again by the receive time that travels with the
 * packet. The agent takes those of packets that never leave.
 */
#ifndef WAYMARK_IOAM_DIRECT_H
#define WAYMARK_IOAM_DIRECT_H

/* Records that wait. Made at ingress; deleted at egress or, after a second, by the agent. Full: none waits. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ioam_direct_key);
	__type(value, struct ioam_direct_record);
} ioam_direct_waiting SEC(".maps");

/* Of one CPU: the limits, and memory for one option. */
struct ioam_direct_work {
	struct ioam_limit limit;
	struct ioam_direct_key key;
	struct ioam_direct_record record;
};

/* A direct export option with both fields that are defined, which come first. */
struct ioam_direct_option {
	__u8 option;
	__u8 len;
	__u8 reserved;
	__u8 type;
	__be16 space;
	__u8 flags;
	__u8 extension;
	__be32 fields;
	__be32 word[2];
};

#define IOAM_DIRECT_HEADER offsetof(struct ioam_direct_option, word)

/* Reads the option at w->at. IOAM_PASS, or a reason. */
static __always_inline int ioam_direct_read(frame_ctx *ctx, const struct ioam_work *w,
					    struct ioam_direct_record *r)
{
	struct ioam_direct_option o = {};
	__u32 words;

	if (w->at - w->l3 & 3 || w->len + 2 < IOAM_DIRECT_HEADER)
		return IOAM_EXPORT_MALFORMED;
	if (frame_load(ctx, w->at, &o, IOAM_DIRECT_HEADER))
		return IOAM_UNREADABLE;
	words = ioam_bits(o.extension);
	if (w->len + 2 < IOAM_DIRECT_HEADER + words * 4)
		return IOAM_EXPORT_MALFORMED;
	if (words && frame_load(ctx, w->at + IOAM_DIRECT_HEADER, o.word, words > 1 ? 8 : 4))
		return IOAM_UNREADABLE;
	r->space = bpf_ntohs(o.space);
	r->flags = o.flags;
	r->extension = o.extension;
	r->fields = bpf_ntohl(o.fields) & ~0xffU;
	r->flow = 0;
	r->sequence = 0;
	if (o.extension & IOAM_DEX_FLOW) {
		r->flow = bpf_ntohl(o.word[0]);
		o.word[0] = o.word[1];
	}
	if (o.extension & IOAM_DEX_SEQUENCE)
		r->sequence = bpf_ntohl(o.word[0]);
	return IOAM_PASS;
}

/*
 * Whether a packet is one of those that all nodes export: with its number in its flow each of them chooses the same
 * ones, so that their records can be joined. A smaller share is a part of a larger one.
 */
static __always_inline bool ioam_direct_chosen(const struct ioam_direct_record *r, __u32 every)
{
	__u32 x = r->flow * 0x9e3779b1 + r->sequence;

	if (!(r->extension & IOAM_DEX_SEQUENCE))
		return true;
	x ^= x >> 16; /* the finalizer of MurmurHash3 */
	x *= 0x85ebca6b;
	x ^= x >> 13;
	x *= 0xc2b2ae35;
	x ^= x >> 16;
	return !((__u64)x * every >> 32);
}

/* Takes from the limits: 1 of so many packets, and so many per second. IOAM_EXPORTED, or a reason. */
static __always_inline int ioam_direct_take(struct ioam_direct_work *d)
{
	__u32 every = ioam.direct_every;

	ioam_limit_add(&d->limit, 1, every);
	if (!ioam_direct_chosen(&d->record, every))
		return IOAM_EXPORT_NOT_SAMPLED;
	switch (ioam_limit_take(&d->limit, every, ioam.direct_rate)) {
	case IOAM_LIMIT_OK:
		return IOAM_EXPORTED;
	case IOAM_LIMIT_SHARE:
		return IOAM_EXPORT_NOT_SAMPLED;
	}
	return IOAM_EXPORT_RATE;
}

/* Protocol and ports of the packet. */
static __always_inline void ioam_direct_ports(frame_ctx *ctx, const struct ioam_work *w,
					      struct ioam_direct_record *r)
{
	struct chain chain = {
		.next = IPPROTO_HOPOPTS,
		.ipv6 = 1,
		.offset = w->l3 + sizeof(struct ipv6hdr),
		.ip_end = frame_len(ctx),
	};
	__be16 ports[2];

	r->proto = IPPROTO_NONE;
	r->sport = 0;
	r->dport = 0;
	if (walk_extensions(ctx, &chain) != PARSE_OK)
		return;
	r->proto = chain.next;
	if (chain.fragment == FRAGMENT_LATER ||
	    (r->proto != IPPROTO_TCP && r->proto != IPPROTO_UDP && r->proto != IPPROTO_SCTP) ||
	    frame_load(ctx, chain.offset, ports, sizeof(ports)))
		return;
	r->sport = ports[0];
	r->dport = ports[1];
}

/* The node's data, as far as they are known at ingress. */
static __always_inline void ioam_direct_fill(frame_ctx *ctx, struct ioam_work *w,
					     const struct ioam_namespace *ns,
					     struct ioam_direct_record *r)
{
	struct ioam_schema *schema;
	__u32 index = ns->schema, at;

	r->received = ioam_arrived(ctx, w);
	r->bytes = ioam_fill(ctx, w, ns, r->fields);
	if (r->fields & IOAM_CHECKSUM) { /* nothing to be neutral to */
		at = ioam_before(r->fields, 7);
		if (at <= IOAM_NODE_MAX - 4)
			w->data[at / 4] = IOAM_UNKNOWN;
	}
	__builtin_memcpy(r->data, w->data, sizeof(r->data));
	r->schema_bytes = 0;
	if (!(r->fields & IOAM_SNAPSHOT) || ns->snapshot < 2)
		return;
	schema = bpf_map_lookup_elem(&ioam_schemas, &index);
	if (!schema)
		return;
	r->schema_bytes = (ns->snapshot - 1) * 4;
	__builtin_memcpy(r->schema, schema->data, sizeof(r->schema));
}

/* Puts a record into the ring, and counts it. */
static __always_inline void ioam_direct_export(frame_ctx *ctx, struct ioam_direct_record *r)
{
	if (bpf_ringbuf_output(&ioam_direct_records, r, sizeof(*r), 0))
		ioam_count(ctx, DIRECTION_INGRESS, IOAM_EXPORT_LOST, r->space);
	else
		ioam_stats_add(IOAM_EXPORTED, r->packets);
}

/* The option at w->at, of a packet that arrives. 1: its record waits; 0: it does not. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_direct_option(frame_ctx *ctx, struct ioam_work *w)
{
	const struct ioam_namespace *ns;
	struct ioam_direct_work *d;
	struct ioam_direct_record *r;
	__u32 role;
	int rc;

	d = SCRATCH(struct ioam_direct_work, ioam_direct);
	if (!w || !d)
		return 0;
	r = &d->record;
	rc = ioam_direct_read(ctx, w, r);
	if (rc != IOAM_PASS) {
		ioam_count(ctx, DIRECTION_INGRESS, rc, 0);
		return 0;
	}
	ns = ioam_namespace(w->copy, r->space);
	role = ioam_role(ctx, w, r->space);
	if (!ns) {
		ioam_count(ctx, DIRECTION_INGRESS, IOAM_NAMESPACE_UNKNOWN, r->space);
		return 0;
	}
	rc = role & IOAM_ROLE_INGRESS ? ioam_direct_take(d) : IOAM_NO_ROLE;
	if (rc != IOAM_EXPORTED) {
		ioam_count(ctx, DIRECTION_INGRESS, rc, r->space);
		return 0;
	}
	r->iface = iface_of(ctx);
	r->packets = segments_of(ctx);
	frame_load(ctx, w->l3 + offsetof(struct ipv6hdr, saddr), r->source,
		   sizeof(r->source) + sizeof(r->destination));
	ioam_direct_ports(ctx, w, r);
	ioam_direct_fill(ctx, w, ns, r);
	if (cfg_ioam_stamp && !ns->remove && r->fields & IOAM_AT_EGRESS) {
		d->key.received = r->received;
		d->key.space = r->space;
		d->key.number = w->direct;
		if (!bpf_map_update_elem(&ioam_direct_waiting, &d->key, r, BPF_NOEXIST))
			return 1;
	}
	ioam_direct_export(ctx, r);
	return 0;
}

/*
 * All options of a packet that arrives, by which it asks for something to leave this node; those for loopback, too. Not
 * 0: a record waits for the egress. Verified alone.
 */
__feature(FEATURE_IOAM) __noinline int ioam_direct(frame_ctx *ctx, struct ioam_work *w)
{
	struct ioam_options o;
	bool changes;

	if (!w || !ioam_options(ctx, w->l3, &o, &w->hop_limit))
		return 0;
	w->hop_limit--;
	w->direct = 0;
	w->waits = false;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_OPTIONS_MAX && ioam_next(ctx, &o, w, &changes); i++) {
		if (changes) {
			ioam_loopback_option(ctx, w, o.next == IPPROTO_NONE);
			continue;
		}
		if (!ioam.direct_every || !ioam_is_direct(ctx, w))
			continue;
		if (ioam_direct_option(ctx, w))
			w->waits = true;
		w->direct++;
	}
	return w->waits;
}

/* The stamp of a packet that arrives, with which the egress finds what waits for it. */
static __always_inline __u64 ioam_direct_stamp(frame_ctx *ctx, struct ioam_work *w, __u64 stamp)
{
	w->received = stamp > IOAM_STAMP_NO_TIME ? stamp : 0;
	return ioam_direct(ctx, w) ? w->received : stamp;
}

/* Fills in what the egress knows. */
static __always_inline void ioam_direct_complete(frame_ctx *ctx, const struct ioam_work *w,
						 struct ioam_direct_record *r)
{
	__u32 fields = r->fields, at;
	struct ioam_queue q;

	if (!(ioam_role(ctx, w, r->space) & IOAM_ROLE_EGRESS))
		return;
	at = ioam_before(fields, 1) + 2;
	if (fields & IOAM_BIT(1) && at <= IOAM_DIRECT_DATA - 2)
		*(__be16 *)(r->data + at) = bpf_htons(w->port.id);
	at = ioam_before(fields, 4);
	if (fields & IOAM_BIT(4) && at <= IOAM_DIRECT_DATA - 4)
		*(__be32 *)(r->data + at) = bpf_htonl(ioam_delay(w->received));
	at = ioam_before(fields, 9) + 4;
	if (fields & IOAM_BIT(9) && at <= IOAM_DIRECT_DATA - 4)
		*(__be32 *)(r->data + at) = bpf_htonl(w->port.wide);
	if (!(fields & IOAM_QUEUES))
		return;
	ioam_queue_of(ctx, &q);
	at = ioam_before(fields, 6);
	if (fields & IOAM_BIT(6) && at <= IOAM_DIRECT_DATA - 4)
		*(__be32 *)(r->data + at) = bpf_htonl(q.depth);
	at = ioam_before(fields, 11);
	if (fields & IOAM_BIT(11) && at <= IOAM_DIRECT_DATA - 4)
		*(__be32 *)(r->data + at) = bpf_htonl(q.occupancy);
}

/* The option at w->at, of a packet that leaves. Verified alone. */
__feature(FEATURE_IOAM) __noinline int ioam_direct_leave(frame_ctx *ctx, struct ioam_work *w)
{
	struct ioam_direct_record *r;
	struct ioam_direct_work *d;
	__be16 space;

	d = SCRATCH(struct ioam_direct_work, ioam_direct);
	if (!w || !d || !ioam_is_direct(ctx, w))
		return 0;
	d->key.number = w->direct++;
	if (w->len < IOAM_BODY || frame_load(ctx, w->at + IOAM_BODY, &space, sizeof(space)))
		return 0;
	d->key.received = w->received;
	d->key.space = bpf_ntohs(space);
	r = bpf_map_lookup_elem(&ioam_direct_waiting, &d->key);
	if (!r)
		return 0;
	__builtin_memcpy(&d->record, r, sizeof(*r));
	if (bpf_map_delete_elem(&ioam_direct_waiting, &d->key)) /* the agent was first */
		return 0;
	ioam_direct_complete(ctx, w, &d->record);
	ioam_direct_export(ctx, &d->record);
	return 0;
}

#endif

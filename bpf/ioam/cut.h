/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The extension headers of a packet without the options that do not stay.
 *
 * Input: a packet with extension headers, at any hook. Output: in struct ioam_cut, what these
 * headers will be, and why options do not stay; the packet is only read. Called by border.h, and by
 * remove.h, which then changes the packet.
 *
 * What goes is removed in whole units of eight bytes, so that all other options keep their
 * alignment. Options that were appended to a header go as they came, with the padding after them,
 * and no other byte changes. Where that is not a multiple of eight, padding around them is replaced
 * by the least that is needed. A header with nothing else goes as a whole.
 */
#ifndef WAYMARK_IOAM_CUT_H
#define WAYMARK_IOAM_CUT_H

/* Bytes of extension headers that can change. */
#define IOAM_CUT_MAX 2048
/*
 * Options that are read in one header. Linux drops packets with more than eight, or with more than
 * seven bytes of padding in a row: these are 71 at most.
 */
#define IOAM_CUT_OPTIONS 72
#define IOAM_UNIT 8
/* ioam_cut.link: the IPv6 header. */
#define IOAM_LINK_IP 0xffffffff

enum ioam_fate {
	IOAM_STAYS,
	IOAM_GOES, /* its namespace ends here, or it is PDM's */
	IOAM_BARRED, /* the interface has no role for its namespace */
};

struct ioam_cut {
	__u8 bytes[2 * IOAM_CUT_MAX]; /* the headers as they will be */
	struct chain chain; /* after ioam_cut_plan(): what follows them */
	__u32 direction;
	__u32 pdm; /* offset of PDM's option, which goes, too; 0: none */
	__u32 start; /* offset of the first header */
	__u32 header; /* offset of the one that is read, and its size */
	__u32 size;
	__u32 out; /* of bytes: written */
	__u32 padding; /* in bytes: where that begins which follows the last option that stays */
	__u32 cut; /* in the header: the first option that goes; 0: none */
	__u32 others; /* options that stay, without padding */
	__u32 run; /* in the header: where options begin that go, one after the other; 0: none */
	__u32 link; /* in bytes: what names the next header */
	/* Up to and with the last header that changes: */
	__u32 from; /* bytes of the packet; 0: none changes */
	__u32 to; /* bytes that replace them */
	__u32 to_link;
	__u32 gone; /* IOAM options with IOAM_GOES */
	__u32 barred;
	__u16 space; /* namespace of the first of these */
	__u8 to_next;
	__u8 first; /* next header of the IPv6 header */
	__u8 uneven; /* padding of the header was replaced */
	__u8 unread; /* headers or options exceed what is read */
	__u8 authenticated;
	__u8 fixed; /* authenticated, or in a fragment: something that goes cannot */
};

static __always_inline struct ioam_cut *ioam_cut_begin(__u32 direction)
{
	struct ioam_cut *c = SCRATCH(struct ioam_cut, ioam_cut);

	if (!c)
		return NULL;
	c->direction = direction;
	c->pdm = 0;
	return c;
}

/* In a form of which Linux 6.1 sees the bounds: 1 to IOAM_CUT_MAX. */
static __always_inline __u32 ioam_cut_bounded(__u32 n)
{
	n--;
	barrier_var(n);
	return (n & (IOAM_CUT_MAX - 1)) + 1;
}

/* n bytes stay. */
static __always_inline bool ioam_keep(frame_ctx *ctx, struct ioam_cut *c, __u32 from, __u32 n)
{
	__u32 to = c->out;

	barrier_var(to);
	to &= IOAM_CUT_MAX - 1;
	if (frame_load(ctx, from, c->bytes + to, ioam_cut_bounded(n)))
		return false;
	c->out += n;
	return true;
}

/* A byte of the headers as they will be. */
static __always_inline void ioam_cut_set(struct ioam_cut *c, __u32 at, __u8 value)
{
	barrier_var(at);
	c->bytes[at & (IOAM_CUT_MAX - 1)] = value;
}

static __always_inline void ioam_name(struct ioam_cut *c, __u32 link, __u8 proto)
{
	if (link == IOAM_LINK_IP)
		c->first = proto;
	else
		ioam_cut_set(c, link, proto);
}

/* Options that go, one after the other, with padding after them, end in the header at `end`. */
static __always_inline void ioam_close(struct ioam_cut *c, __u32 end)
{
	__u32 n = end - c->run, at;
	__u8 *pad;

	if (!((c->run | n) & (IOAM_UNIT - 1)))
		return;
	n = (n + c->out - c->padding) & (IOAM_UNIT - 1);
	c->out = c->padding + n;
	c->uneven = true;
	at = c->padding;
	barrier_var(at);
	pad = c->bytes + (at & (IOAM_CUT_MAX - 1));
	/* What exceeds the padding is overwritten, or not used. */
	__builtin_memset(pad, 0, IOAM_UNIT);
	if (n < 2)
		return;
	pad[0] = OPTION_PADN;
	pad[1] = n - 2;
}

static __always_inline enum ioam_fate ioam_fate_of(frame_ctx *ctx, const struct ioam_work *w,
						   struct ioam_cut *c, __u32 at, const __u8 tlv[2])
{
	const struct ioam_namespace *ns;
	__be16 space;
	__u32 role;

	if (at == c->pdm)
		return IOAM_GOES;
	if ((tlv[0] != IOAM_OPTION_CHANGES && tlv[0] != IOAM_OPTION_STAYS) ||
	    tlv[1] < 2 + sizeof(space) ||
	    frame_load(ctx, at + offsetof(struct ioam_trace, space), &space, sizeof(space)))
		return IOAM_STAYS;
	ns = ioam_namespace(w->copy, bpf_ntohs(space));
	if (!ns)
		return IOAM_STAYS;
	role = ioam_role(ctx, w, ns->id);
	if (!role && w->port.border) {
		if (!c->barred++)
			c->space = ns->id;
		return IOAM_BARRED;
	}
	if (c->direction != DIRECTION_INGRESS || !ns->remove || !(role & IOAM_ROLE_INGRESS))
		return IOAM_STAYS;
	c->gone++;
	return IOAM_GOES;
}

/* The option at byte `at` of the header: its size; 0: it exceeds the header. Verified alone. */
__feature(FEATURE_IOAM) __noinline
	int ioam_cut_option(frame_ctx *ctx, struct ioam_work *w, struct ioam_cut *c, __u32 at)
{
	enum ioam_fate fate = IOAM_STAYS;
	__u32 offset, size;
	__u8 tlv[2];
	bool pads;

	if (!c || !w)
		return 0;
	offset = c->header + at;
	size = option_size(ctx, offset, c->header + c->size, tlv);
	if (!size)
		return 0;
	pads = tlv[0] <= OPTION_PADN;
	if (!pads)
		fate = ioam_fate_of(ctx, w, c, offset, tlv);
	if (fate != IOAM_STAYS) {
		c->run = c->run ?: at;
		c->cut = c->cut ?: at;
	} else if (!pads || !c->run) {
		if (c->run)
			ioam_close(c, at);
		c->run = 0;
		if (!ioam_keep(ctx, c, offset, size))
			return 0;
		if (!pads) {
			c->padding = c->out;
			c->others++;
		}
	}
	return size;
}

/* The header at c->header. Not 0 where its options exceed it. */
__feature(FEATURE_IOAM) __noinline
	int ioam_cut_options(frame_ctx *ctx, struct ioam_work *w, struct ioam_cut *c)
{
	__u32 at = 2, start;

	if (!c || !w)
		return -1;
	start = c->out;
	c->cut = c->others = c->run = c->uneven = 0;
	if (!ioam_keep(ctx, c, c->header, 2))
		return -1;
	c->padding = c->out;
#pragma clang loop unroll(disable)
	for (int i = 0; i < IOAM_CUT_OPTIONS && at < c->size; i++) {
		__u32 size = ioam_cut_option(ctx, w, c, at);

		if (!size)
			return -1;
		at += size;
	}
	if (at < c->size) {
		c->unread = true;
		return -1;
	}
	if (c->run)
		ioam_close(c, at);
	if (c->cut && !c->others && (c->cut < IOAM_UNIT || c->uneven))
		c->out = start;
	else
		ioam_cut_set(c, start + 1, (c->out - start) / IOAM_UNIT - 1);
	return 0;
}

/*
 * Passes one header. False at the end of what can change. Of what follows a Fragment header, offsets
 * of other fragments depend.
 */
static __always_inline bool ioam_cut_header(frame_ctx *ctx, struct ioam_work *w, struct ioam_cut *c)
{
	__u8 proto = c->chain.next;
	__u32 start = c->out;

	c->header = c->chain.offset;
	if (pass_extension(ctx, &c->chain) > PARSE_OK)
		return false;
	c->size = c->chain.offset - c->header;
	if (c->chain.offset - c->start > IOAM_CUT_MAX) {
		c->unread = true;
		return false;
	}
	c->cut = 0;
	if (proto == IPPROTO_HOPOPTS || proto == IPPROTO_DSTOPTS) {
		if (ioam_cut_options(ctx, w, c)) {
			c->fixed |= c->cut > 0;
			return false;
		}
	} else if (!ioam_keep(ctx, c, c->header, c->size)) {
		return false;
	}
	if (c->out > start) {
		ioam_name(c, c->link, proto);
		c->link = start;
	}
	if (c->cut && c->chain.fragment) {
		c->fixed = true;
	} else if (c->cut) {
		c->from = c->chain.offset - c->start;
		c->to = c->out;
		c->to_link = c->link;
		c->to_next = c->chain.next;
	}
	return c->chain.fragment != FRAGMENT_LATER;
}

/* The headers of the packet at w->l3. Returns the options that do not stay, PDM's not among them. */
__feature(FEATURE_IOAM) __noinline
	int ioam_cut_plan(frame_ctx *ctx, struct ioam_work *w, struct ioam_cut *c)
{
	struct ipv6hdr ip;

	if (!c || !w || frame_load(ctx, w->l3, &ip, sizeof(ip)))
		return 0;
	c->start = w->l3 + sizeof(ip);
	c->out = c->from = c->to = c->gone = c->barred = 0;
	c->unread = c->fixed = c->authenticated = 0;
	c->link = IOAM_LINK_IP;
	c->first = ip.nexthdr;
	__builtin_memset(&c->chain, 0, sizeof(c->chain));
	c->chain.offset = c->start;
	c->chain.ip_end = ip.payload_len ? c->start + bpf_ntohs(ip.payload_len) : frame_len(ctx);
	c->chain.next = ip.nexthdr;
	c->chain.ipv6 = true;
#pragma clang loop unroll(disable)
	for (int i = 0; i < EXT_HEADERS_MAX + 1; i++) {
		__u8 proto = c->chain.next;

		/* Mobility, HIP, Shim6: what follows is not theirs to name. */
		if (!is_extension(proto, true) || proto > 63 || (proto == IPPROTO_HOPOPTS && i))
			break;
		if (i == EXT_HEADERS_MAX) {
			c->unread = true;
			break;
		}
		if (proto == IPPROTO_AH)
			c->authenticated = true;
		if (!ioam_cut_header(ctx, w, c))
			break;
	}
	if (c->from)
		ioam_name(c, c->to_link, c->to_next);
	c->fixed |= c->authenticated;
	return c->gone + c->barred;
}

#endif

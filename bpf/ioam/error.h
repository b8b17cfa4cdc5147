/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads ICMPv6 errors about packets with IOAM options.
 *
 * Input: an ICMPv6 error at tc ingress. Output: what its tunnel, or the flows of its packet, have learned
 * of the path. Called by probe.h, before PDM reads the same error.
 */
#ifndef WAYMARK_IOAM_ERROR_H
#define WAYMARK_IOAM_ERROR_H

/* An ICMPv6 error that arrives: tunnels learn of it, and of a Packet Too Big flows of both kinds. */
__feature(FEATURE_IOAM) __noinline int ioam_error(struct __sk_buff *skb, const struct packet *p)
{
	struct mark_quote *q = quote_of_cpu();
	struct mark_guard *g;
	__u64 now = mark_now();

	if (!p || !q || !quote_read(skb, p))
		return 0;
	if (q->key.proto == IPPROTO_IPV6) {
		q->key.kind = MARK_PDM;
		ioam_wrap_error(skb, p, &q->key, q->mtu, now);
		return 0;
	}
	if (error_type(p) != ICMPV6_PACKET_TOO_BIG)
		return 0;
	q->key.kind = MARK_IOAM_HOP;
	g = bpf_map_lookup_elem(&ioam_guards, &q->key);
	if (!g) {
		q->key.kind = MARK_IOAM_DEST;
		g = bpf_map_lookup_elem(&ioam_guards, &q->key);
	}
	if (g)
		learn_too_big(skb, p, g, q, now, ioam.reserved);
	if (!(cfg_features & FEATURE_PDM)) /* else pdm_too_big() is next */
		quote_report(skb, p);
	return 0;
}

#endif

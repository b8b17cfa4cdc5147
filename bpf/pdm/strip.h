/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Takes the option out of packets that arrive, on request (cfg_pdm_strip).
 *
 * In: where pdm_read() found it. Out: the packet as it was before pdm_mark() at
 * the other end, byte for byte; or as it came, and a reason counted. Called at
 * tc ingress, when all is known of the packet: records tell what was on the wire.
 *
 * Bytes are changed through helpers that keep a sum over the whole packet
 * (CHECKSUM_COMPLETE) right.
 */
#ifndef WAYMARK_PDM_STRIP_H
#define WAYMARK_PDM_STRIP_H

/*
 * Segments of a burst stay as large as they are, and a checksum that the NIC
 * found right stays right: it does not cover extension headers.
 */
#define STRIP_FLAGS (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

/* Moves the headers before the cut to where it ends. False: the packet is broken. */
static __always_inline bool close_gap(struct __sk_buff *skb, __u32 from, __u32 to)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < PDM_MOVE_MAX / 8; i++) {
		__u64 word;

		if (to <= from)
			return true;
		to -= 8;
		if (bpf_skb_load_bytes(skb, to, &word, 8) ||
		    bpf_skb_store_bytes(skb, to + PDM_HEADER, &word, 8, BPF_F_RECOMPUTE_CSUM))
			return false;
	}
	return to <= from;
}

static __always_inline bool put(struct __sk_buff *skb, __u32 at, const void *data, __u32 n)
{
	return !bpf_skb_store_bytes(skb, at, data, n, BPF_F_RECOMPUTE_CSUM);
}

/* READ_OK or a reason. */
static __always_inline int strip(struct __sk_buff *skb, const struct packet *p,
				 const struct pdm_cut *cut)
{
	__u32 headers = p->l3_offset + sizeof(struct ipv6hdr);
	__u32 len_at = p->l3_offset + offsetof(struct ipv6hdr, payload_len);
	bool first = cut->offset == headers;
	__u8 next, units;
	__be16 len;

	if (cut->offset < headers || cut->offset - headers > PDM_MOVE_MAX)
		return PDM_NOT_STRIPPED;
	/* What is moved is made linear, and the packet's own, before. */
	if ((!first && bpf_skb_pull_data(skb, cut->offset + PDM_HEADER)) ||
	    bpf_skb_load_bytes(skb, len_at, &len, 2) ||
	    bpf_skb_load_bytes(skb, cut->offset, &next, 1) ||
	    bpf_skb_load_bytes(skb, cut->joined + 1, &units, 1))
		return PDM_NOT_STRIPPED;
	if (!len)
		return PDM_NOT_STRIPPED; /* a jumbogram has its length elsewhere */
	/* What may refuse comes first, unless something must be moved before it. */
	if (first && bpf_skb_adjust_room(skb, -PDM_HEADER, BPF_ADJ_ROOM_NET, STRIP_FLAGS))
		return PDM_NOT_STRIPPED;
	units -= PDM_HEADER / 8;
	len = bpf_htons(bpf_ntohs(len) - PDM_HEADER);
	if (!put(skb, len_at, &len, 2) ||
	    !(cut->joined ? put(skb, cut->joined + 1, &units, 1) : put(skb, cut->link, &next, 1)))
		return PDM_BROKEN;
	if (first)
		return READ_OK;
	if (!close_gap(skb, headers, cut->offset) ||
	    bpf_skb_adjust_room(skb, -PDM_HEADER, BPF_ADJ_ROOM_NET, STRIP_FLAGS))
		return PDM_BROKEN;
	return READ_OK;
}

/* Not static: verified alone and once, whatever leads to it. */
__noinline int pdm_strip_ipv6(struct __sk_buff *skb, const struct packet *p)
{
	struct pdm_work *work = get_work();
	int rc;

	if (!p || !work)
		return TC_ACT_UNSPEC;
	rc = strip(skb, p, &work->cut);
	if (rc == READ_OK)
		PDM_STAT_ADD(stripped, 1);
	else
		pdm_count(skb, DIRECTION_INGRESS, rc);
	return rc == PDM_BROKEN ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/*
 * found: what pdm_read() said. TC_ACT_UNSPEC, or TC_ACT_SHOT for a packet that
 * could not be put together again.
 */
static __always_inline int pdm_strip(struct __sk_buff *skb, const struct packet *p, bool found)
{
	if (!cfg_pdm_strip || !found)
		return TC_ACT_UNSPEC;
	return pdm_strip_ipv6(skb, p);
}

#endif

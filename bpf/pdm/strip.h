/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Takes the option out of packets that arrive, on request (cfg_pdm_strip).
 *
 * Input: where pdm_read() found it. Output: the packet as it was before pdm_mark()
 * at the other end, byte for byte; or as it came, and a reason counted. Called at
 * tc ingress, when all is known of the packet: records report what was on the wire.
 */
#ifndef WAYMARK_PDM_STRIP_H
#define WAYMARK_PDM_STRIP_H

/* READ_OK or a reason. */
static __always_inline int strip(struct __sk_buff *skb, const struct packet *p,
				 const struct pdm_cut *cut)
{
	struct space gap = { .at = cut->offset, .bytes = PDM_HEADER };
	__u32 l3 = p->l3_offset, headers = l3 + sizeof(struct ipv6hdr);
	bool first = cut->offset == headers;
	__u8 next, units;
	int rc;

	if (space_removable(skb, l3, cut->offset, PDM_HEADER) != SPACE_OK ||
	    bpf_skb_load_bytes(skb, cut->offset, &next, 1) ||
	    bpf_skb_load_bytes(skb, cut->joined + 1, &units, 1))
		return PDM_NOT_STRIPPED;
	/* What may refuse comes first, unless something must be moved before it. */
	rc = first ? space_take(skb, l3, &gap, SPACE_SAME_NEXT, SPACE_SHRINK) : SPACE_OK;
	if (rc != SPACE_OK)
		return rc == SPACE_BROKEN ? MARK_BROKEN : PDM_NOT_STRIPPED;
	units -= PDM_HEADER / 8;
	if (!(cut->joined ? space_put(skb, cut->joined + 1, &units, 1)
			  : space_put(skb, cut->link, &next, 1)))
		return MARK_BROKEN;
	if (first)
		return READ_OK;
	if (space_back(skb, &gap, headers) != SPACE_OK ||
	    space_take(skb, l3, &gap, SPACE_SAME_NEXT, SPACE_SHRINK) != SPACE_OK)
		return MARK_BROKEN;
	return READ_OK;
}

/* Not static: verified alone and once, whatever leads to it. */
__feature(FEATURE_PDM) __noinline int pdm_strip_ipv6(struct __sk_buff *skb, const struct packet *p)
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
	return rc == MARK_BROKEN ? TC_ACT_SHOT : TC_ACT_UNSPEC;
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

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Connection IDs of QUIC that name a backend: the plaintext form of QUIC-LB. The first byte has the configuration in its
 * upper three bits; the backend's id follows.
 *
 * Input: a UDP packet to a service that has such ids. Output: the number of a backend. What clients choose for their first
 * packets names none as a rule; those go by the connection table. Called by balance.h.
 */
#ifndef WAYMARK_BALANCE_QUIC_H
#define WAYMARK_BALANCE_QUIC_H

#define BALANCE_QUIC_LONG 0x80 /* bit of the first byte: a long header */
#define BALANCE_QUIC_LONG_ID 6 /* where the connection ID begins there */

/* The id's bytes, up to eight. Not 0: there are not so many. */
static __always_inline int balance_quic_id(const struct frame *f, const __u8 *payload,
					   const struct balance_service *s, __u64 *id)
{
	const __u8 *cid = payload + 1;
	__u8 length = 20;
	__u64 word = 0; /* not bytes: stack is scarce here */

	if ((const void *)payload + BALANCE_QUIC_LONG_ID + 1 > f->end)
		return -1;
	if (payload[0] & BALANCE_QUIC_LONG) {
		length = payload[BALANCE_QUIC_LONG_ID - 1];
		cid = payload + BALANCE_QUIC_LONG_ID;
	}
	if (length <= s->quic_length || cid[0] >> 5 != s->quic_config)
		return -1;
#pragma unroll
	for (int i = 0; i < sizeof(word); i++) {
		if (i >= s->quic_length)
			break;
		cid++;
		barrier_var(cid); /* else the compiler computes with the end */
		if ((const void *)(cid + 1) > f->end)
			return -1;
		word |= (__u64)*cid << 8 * i;
	}
	*id = word;
	return 0;
}

/* False: the packet names no backend that is there. */
static __always_inline bool balance_quic(frame_ctx *xdp, const struct packet *p,
					 const struct balance_service *s, struct balance_view *v)
{
	__u32 offset = p->l4_offset, *number;
	struct balance_id key = { .service = v->number };
	struct frame f = frame_of(xdp);

	barrier_var(offset);
	if (!s->quic || p->fragment || offset > 255 ||
	    balance_quic_id(&f, f.data + offset + sizeof(struct udphdr), s, &key.id))
		return false;
	number = bpf_map_lookup_elem(&balance_ids, &key);
	if (!number || !balance_serves(*number, v->number))
		return false;
	v->backend = *number;
	v->choice = DRY_CHOICE_QUIC;
	return true;
}

#endif

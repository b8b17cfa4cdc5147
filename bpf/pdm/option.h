/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The PDM option as bytes (RFC 8250 section 3.2): encode, decode. Called by
 * both stages.
 */
#ifndef WAYMARK_PDM_OPTION_H
#define WAYMARK_PDM_OPTION_H

#define PDM_OPTION 0x0f /* the two highest bits 00: whoever does not know it skips it */
#define PDM_LEN 10
#define PDM_SIZE 12 /* with type and length */
#define PDM_V2_LEN 0x12
#define PDM_V2_ENCRYPTED_LEN 0x22
#define PDM_HEADER 16 /* bytes of a header with the option alone */

/* What one packet carries. */
struct pdm_option {
	__u16 psntp; /* number of this packet */
	__u16 psnlr; /* of the packet received last, 0 before any */
	struct pdm_delta dtlr; /* since that one was received */
	struct pdm_delta dtls; /* between the packet sent before and what followed it */
};

/* Likewise in two words, as they follow each other on the wire: two registers while a packet is marked. */
struct pdm_words {
	__u64 numbers; /* 48 bits: the scales of both deltas, both numbers */
	__u64 deltas; /* 32 bits: DTLR, DTLS */
};

/* DTLS in both. */
#define WORDS_DTLS_SCALE 32
#define WORDS_DTLS 0xffffULL

static __always_inline void words_unpack(const struct pdm_words *w, struct pdm_option *o)
{
	o->dtlr.scale = w->numbers >> 40;
	o->dtls.scale = w->numbers >> WORDS_DTLS_SCALE;
	o->psntp = w->numbers >> 16;
	o->psnlr = w->numbers;
	o->dtlr.delta = w->deltas >> 16;
	o->dtls.delta = w->deltas;
}

static __always_inline void encode(const struct pdm_option *o, __u8 *data)
{
	data[0] = PDM_OPTION;
	data[1] = PDM_LEN;
	data[2] = o->dtlr.scale;
	data[3] = o->dtls.scale;
	data[4] = o->psntp >> 8;
	data[5] = o->psntp;
	data[6] = o->psnlr >> 8;
	data[7] = o->psnlr;
	data[8] = o->dtlr.delta >> 8;
	data[9] = o->dtlr.delta;
	data[10] = o->dtls.delta >> 8;
	data[11] = o->dtls.delta;
}

static __always_inline void decode(const __u8 *data, struct pdm_option *o)
{
	o->dtlr.scale = data[2];
	o->dtls.scale = data[3];
	o->psntp = data[4] << 8 | data[5];
	o->psnlr = data[6] << 8 | data[7];
	o->dtlr.delta = data[8] << 8 | data[9];
	o->dtls.delta = data[10] << 8 | data[11];
}

#endif

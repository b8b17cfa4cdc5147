/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Proof of transit by Shamir's secret sharing (draft-ietf-sfc-proof-of-transit; experimental).
 *
 * Input: PktID and Cumulative of an option. Output: the Cumulative that this node writes, or whether
 * all nodes of the path have written theirs. The same arithmetic as Share in wire/ioam.
 */
#ifndef WAYMARK_IOAM_PROOF_H
#define WAYMARK_IOAM_PROOF_H

/* Of both copies of the configuration. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ioam_proof);
} ioam_proofs SEC(".maps");

/* The body of the option, behind IOAM-Opt-Type. */
struct ioam_proof_body {
	__be16 space;
	__u8 type;
	__u8 flags;
	__be64 packet;
	__be64 cumulative;
} __attribute__((packed));

/* a + b modulo p, for a and b below p. */
static __always_inline __u64 ioam_add_mod(__u64 a, __u64 b, __u64 p)
{
	__u64 sum = a + b;

	return sum < a || sum >= p ? sum - p : sum;
}

/* The high half of a product. */
static __always_inline __u64 ioam_high(__u64 a, __u64 b)
{
	__u64 a0 = (__u32)a, a1 = a >> 32, b0 = (__u32)b, b1 = b >> 32;
	__u64 low = a0 * b0, one = a1 * b0 + (low >> 32), two = a0 * b1 + (__u32)one;

	return a1 * b1 + (one >> 32) + (two >> 32);
}

/* a * b / 2^64 modulo p, for a and b below p (Montgomery): 60 instructions, not 64 rounds. */
static __always_inline __u64 ioam_mul_mod(__u64 a, __u64 b, __u64 p, __u64 inverse)
{
	__u64 low = a * b, high = ioam_high(a, b), more = ioam_high(low * inverse, p);

	/* The low halves add up to 0, with a carry unless both are 0. More than p is 0. */
	if (low && ++more == p)
		more = 0;
	return ioam_add_mod(high, more, p);
}

static __always_inline const struct ioam_proof *ioam_proof(__u32 number)
{
	__u32 index = number - 1;

	return number ? bpf_map_lookup_elem(&ioam_proofs, &index) : NULL;
}

/* The Cumulative that the node writes. */
static __always_inline __u64 ioam_prove(const struct ioam_proof *proof, __u64 packet,
					__u64 cumulative)
{
	__u64 p = proof->prime, point = ioam_add_mod(proof->point, packet % p, p);

	return ioam_add_mod(cumulative % p, ioam_mul_mod(point, proof->weight, p, proof->inverse),
			    p);
}

/* Whether each node of the path has updated the option. */
static __always_inline bool ioam_is_proven(const struct ioam_proof *proof, __u64 packet,
					   __u64 cumulative)
{
	return cumulative == ioam_add_mod(proof->secret, packet % proof->prime, proof->prime);
}

/*
 * An option that arrives: this node's share goes into it, and the last node verifies it. An enum
 * ioam_reason, or IOAM_PASS.
 */
__feature(FEATURE_IOAM) __noinline int ioam_transit_proof(frame_ctx *ctx, struct ioam_work *w)
{
	const struct ioam_proof *proof;
	const struct ioam_namespace *ns;
	struct ioam_proof_body b;
	__u64 packet, cumulative;

	if (!w)
		return IOAM_PASS;
	if (w->len < IOAM_BODY - 2 + sizeof(b))
		return IOAM_PROOF_UNKNOWN;
	if (frame_load(ctx, w->at + IOAM_BODY, &b, sizeof(b)))
		return IOAM_UNREADABLE;
	w->space = bpf_ntohs(b.space);
	ns = ioam_namespace(w->copy, w->space);
	if (!ns)
		return IOAM_NAMESPACE_UNKNOWN;
	if (!(ioam_role(ctx, w, w->space) & IOAM_ROLE_INGRESS))
		return IOAM_NO_ROLE;
	if (b.type)
		return IOAM_PROOF_UNKNOWN;
	proof = ioam_proof(ns->proof);
	if (!proof)
		return IOAM_PASS;
	packet = bpf_be64_to_cpu(b.packet);
	cumulative = bpf_be64_to_cpu(b.cumulative);
	if (proof->shares) {
		cumulative = ioam_prove(proof, packet, cumulative);
		b.cumulative = bpf_cpu_to_be64(cumulative);
		if (frame_store(ctx,
				w->at + IOAM_BODY + offsetof(struct ioam_proof_body, cumulative),
				&b.cumulative, sizeof(b.cumulative)))
			return IOAM_UNREADABLE;
	}
	if (proof->verifies && !ioam_is_proven(proof, packet, cumulative))
		return IOAM_UNPROVEN;
	if (proof->verifies)
		ioam_stat(IOAM_PROVEN);
	return proof->shares ? IOAM_WRITTEN : IOAM_PASS;
}

#endif

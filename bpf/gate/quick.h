/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The rules that most hosts have, and the packets that most traffic consists of, without a call: a return takes up to
 * 10 ns where the kernel protects it from speculation. At XDP only.
 *
 * Input: a frame. Output: what gate_run() says of it. Called by xdp.bpf.c.
 */
#ifndef WAYMARK_GATE_QUICK_H
#define WAYMARK_GATE_QUICK_H

#define GATE_USES_QUICK (GATE_USES_HEAD | GATE_USES_NUMBER << GATE_DPORT)

/* Whether all that may concern a packet are up to 64 rules about protocols and ports of destinations. */
static __always_inline bool gate_is_quick(const volatile struct gate_table *t)
{
	return t->rules <= 64 && !(t->used & ~GATE_USES_QUICK) && !t->has && !gate.capture &&
	       !(gate_ban_control.used[0] | gate_ban_control.used[1]);
}

/* The rules that match. */
static __always_inline __u64 gate_quick_match(const volatile struct gate_table *t,
					      const struct gate_facts *f)
{
	__u64 word = t->summary;
	__u32 first = t->row, used = t->used;

	GATE_KEEP_FEW(GATE_USES_HEAD, t->head[gate_within(f->head, GATE_HEADS)]);
	GATE_KEEP_FEW(GATE_USES_NUMBER << GATE_DPORT,
		      gate_find_number(t, GATE_DPORT, f->dport, f->ports));
	return word;
}

/* What these rules say of a packet. false: gate_run() has to look. */
static __always_inline bool gate_quick_decide(const volatile struct gate_table *t,
					      const struct gate_facts *f, struct gate_memo *m)
{
	__u64 word = gate_quick_match(t, f);
	__u32 slot = GATE_SLOT_PASSED, n;
	const struct gate_rule *rule;

	m->state = GATE_AGAIN_NOTHING;
	m->decision = GATE_PASS;
	if (word) {
		n = t->rule + gate_lowest(word);
		rule = bpf_map_lookup_elem(&gate_rules, &n);
		if (!rule || (rule->action != GATE_DROP && rule->action != GATE_PASS))
			return false;
		slot = rule->slot;
		m->decision = (__u64)rule->id << GATE_DECIDED_SHIFT | slot << GATE_SLOT_SHIFT |
			      rule->action;
	}
	m->count = bpf_get_smp_processor_id() * cfg_gate_slots + slot;
	return true;
}

/* All that these rules may ask about a packet, besides what is in gate_state(). */
static __always_inline __u64 gate_memo_key(frame_ctx *ctx, const struct gate_facts *f)
{
	return (__u64)iface_of(ctx) << 32 | f->head << 16 | f->dport;
}

/* 0: nothing is counted, and gate_run() has to look. */
static __always_inline __u64 gate_quick(frame_ctx *ctx, struct gate_drop_part *part)
{
	struct gate_memo *m = &part->memo;
	__u32 copy = gate.copy & 1;
	const volatile struct gate_table *t = &gate.table[copy];
	struct gate_facts f = {};
	struct gate_count *c;
	bool same;
	__u64 key;

	same = m->state == part->again.came;
	if ((!same && !gate_is_quick(t)) || !gate_read_fast(ctx, &f))
		return 0;
	key = gate_memo_key(ctx, &f);
	if (!same || m->key != key) {
		if (!gate_find_iface(copy, iface_of(ctx), GATE_HOOK_XDP))
			return GATE_PASS;
		if (!gate_quick_decide(t, &f, m))
			return 0;
		m->state = part->again.came;
		m->key = key;
	}
	c = bpf_map_lookup_elem(&gate_counts, &m->count);
	if (!c)
		return 0;
	if ((__u8)m->decision == GATE_DROP) {
		c->dropped++;
		c->dropped_bytes += f.bytes;
	} else {
		c->packets++;
		c->bytes += f.bytes;
	}
	return WHOLE(m->decision);
}

static __always_inline __u64 gate_run_xdp(frame_ctx *ctx, struct gate_drop_part *part)
{
	return (part ? gate_quick(ctx, part) : 0) ?: gate_run(ctx, GATE_HOOK_XDP);
}

#endif

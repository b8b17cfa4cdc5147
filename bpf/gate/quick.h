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
	__u32 first = t->row;

	GATE_KEEP_FEW(GATE_USES_HEAD, t->head[gate_within(f->head, GATE_HEADS)]);
	GATE_KEEP_FEW(GATE_USES_NUMBER << GATE_DPORT,
		      gate_find_number(t, GATE_DPORT, f->dport, f->ports));
	return word;
}

/* 0: nothing is counted, and gate_run() has to look. */
static __always_inline __u64 gate_quick(frame_ctx *ctx)
{
	__u32 copy = gate.copy & 1, n;
	const volatile struct gate_table *t = &gate.table[copy];
	const volatile struct gate_iface *iface;
	const struct gate_rule *rule;
	struct gate_facts f = {};
	__u64 word;

	if (!gate_is_quick(t))
		return 0;
	iface = gate_iface_of(copy, iface_of(ctx));
	if (!iface || !(iface->hooks & GATE_HOOK_XDP))
		return GATE_PASS;
	if (!gate_read_fast(ctx, &f))
		return 0;
	f.packets = 1;
	word = gate_quick_match(t, &f);
	if (!word) {
		gate_count(GATE_SLOT_PASSED, &f, false);
		return GATE_PASS;
	}
	n = t->rule + gate_lowest(word);
	rule = bpf_map_lookup_elem(&gate_rules, &n);
	if (!rule || (rule->action != GATE_DROP && rule->action != GATE_PASS))
		return 0;
	gate_count(rule->slot, &f, rule->action == GATE_DROP);
	return (__u64)rule->id << GATE_DECIDED_SHIFT | (__u32)rule->slot << GATE_SLOT_SHIFT |
	       rule->action;
}

static __always_inline __u64 gate_run_xdp(frame_ctx *ctx)
{
	return gate_quick(ctx) ?: gate_run(ctx, GATE_HOOK_XDP);
}

#endif

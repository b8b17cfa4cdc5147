/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The verdict about a packet: which rules match, which count it, and which decides.
 *
 * Input: a frame. Output: GATE_PASS, GATE_DROP or GATE_ANSWER, and counters.
 */
#ifndef WAYMARK_GATE_DECIDE_H
#define WAYMARK_GATE_DECIDE_H

#include "scratch.h"

/* Of a de Bruijn sequence: the number of the only bit that is set. */
static const __u8 gate_bit_numbers[64] = {
	0,  1,	2,  53, 3,  7,	54, 27, 4,  38, 41, 8,	34, 55, 48, 28, 62, 5,	39, 46, 44, 42,
	22, 9,	24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};

static __always_inline __u32 gate_lowest(__u64 word)
{
	return gate_bit_numbers[(word & -word) * 0x022fdd63cc95386dULL >> 58 & 63];
}

/* The number of a rule that decides about what the packet is, above its action. */
#define GATE_NUMBER_SHIFT 8
#define GATE_ACTION_MASK 255

/* A rule that leaves the verdict to others, but not without a trace. Verified alone: it is met in a loop. */
__feature(FEATURE_GATE) __noinline int gate_note(const struct gate_rule *rule, struct gate_facts *f)
{
	if (!rule || !f)
		return 0;
	if (rule->action == GATE_SAMPLE) {
		if (f->quiet || (rule->cost > 1 && bpf_get_prandom_u32() % (__u32)rule->cost))
			return 0;
		f->marks |= rule->marks;
		if (rule->marks & GATE_MARK_SAMPLED && !f->sampled)
			f->sampled = rule->id;
		return 0;
	}
	if (f->marks & GATE_MARK_FLOW_KNOWN)
		return 0;
	f->marks |= GATE_MARK_FLOW_KNOWN;
	if (rule->action == GATE_NO_FLOW)
		f->marks |= GATE_MARK_NO_FLOW;
	return 0;
}

/*
 * The packet meets the rules of a word, in order. 0: none has decided. Verified alone.
 */
__feature(FEATURE_GATE) __noinline int gate_meet(struct gate_facts *f, __u32 first, __u64 word)
{
	const struct gate_rule *rule;
	__u32 n, action;

	if (!f)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < 64; i++) {
		if (!word)
			return 0;
		n = f->rules + first + gate_lowest(word);
		word &= word - 1;
		rule = bpf_map_lookup_elem(&gate_rules, &n);
		if (!rule)
			return 0;
		action = rule->action;
		if (action == GATE_DETECT && !f->quiet)
			gate_detect(n, f);
		if (action == GATE_LIMIT)
			action = !f->quiet && gate_exceeds(n, f) ? GATE_DROP : GATE_COUNT;
		if (action == GATE_SYNCOOKIE) {
			f->decided = rule->id;
			return action | n << GATE_NUMBER_SHIFT; /* counted by gate_cookie() */
		}
		gate_count(rule->slot, f, action == GATE_DROP);
		if (action == GATE_PASS || action == GATE_DROP) {
			f->decided = rule->id;
			return action;
		}
		if (action >= GATE_SAMPLE)
			gate_note(rule, f);
	}
	return 0;
}

/* An index into a table of the control block, in a form whose bounds the verifier sees. */
static __always_inline __u32 gate_within(__u32 n, __u32 size)
{
	barrier_var(n);
	return n < size ? n : 0;
}

/* Every dimension of a packet that rules use, and its row. */
#define GATE_DIMENSIONS(keep)                                                             \
	do {                                                                              \
		keep(GATE_USES_IFACE, iface_row);                                         \
		keep(GATE_USES_HEAD, t->head[gate_within(f->head, GATE_HEADS)]);          \
		keep(GATE_USES_NUMBER << GATE_DPORT,                                      \
		     gate_find_number(t, GATE_DPORT, f->dport, f->ports));                \
		keep(GATE_USES_SRC,                                                       \
		     f->header ? gate_find_near(t->src[f->ipv6], f->src_high, f->src_low) \
			       : t->no_src);                                              \
		keep(GATE_USES_DST,                                                       \
		     f->header ? gate_find_near(t->dst[f->ipv6], f->dst_high, f->dst_low) \
			       : t->no_dst);                                              \
		keep(GATE_USES_NUMBER << GATE_SPORT,                                      \
		     gate_find_number(t, GATE_SPORT, f->sport, f->ports));                \
		keep(GATE_USES_SUB, t->sub[gate_within(f->sub, GATE_SUBS)]);              \
		keep(GATE_USES_NUMBER << GATE_LENGTH,                                     \
		     gate_find_number(t, GATE_LENGTH, f->length, f->header));             \
		keep(GATE_USES_NUMBER << GATE_VLAN,                                       \
		     gate_find_number(t, GATE_VLAN, f->vlan, f->tagged));                 \
		keep(GATE_USES_DSCP, t->dscp[gate_within(f->dscp, GATE_DSCPS)]);          \
	} while (0)

/* Where the rules are that match so far. Of numbers in memory, the verifier follows no values. */
struct gate_matching {
	__u64 groups; /* of words, in which rules may match; the first is that of `word` */
	__u32 word; /* that is read next */
	__u32 first
		[GATE_USED]; /* words of the row of each dimension that rules use, by its bit in enum gate_used */
};

/*
 * Keeps of the matching rules, or of the groups of words that have any, those of a row. So words are read only where each
 * dimension has rules.
 */
#define GATE_KEEP(dimension, index)                                       \
	do {                                                              \
		if (used & (dimension)) {                                 \
			__u32 *at_ = &m->first[__builtin_ctz(dimension)]; \
			const struct gate_row *r_;                        \
			WHOLE(*at_) = first + (index);                    \
			r_ = bpf_map_lookup_elem(&gate_rows, at_);        \
			if (!r_ || !(matching &= r_->summary))            \
				return 0;                                 \
			WHOLE(*at_) = r_->first;                          \
		}                                                         \
	} while (0)

/* Likewise, of up to 64 rules. */
#define GATE_KEEP_FEW(dimension, index)                                                     \
	do {                                                                                \
		if (used & (dimension)) {                                                   \
			__u32 row_ = first + (index);                                       \
			const struct gate_row *r_ = bpf_map_lookup_elem(&gate_rows, &row_); \
			if (!r_ || !(word &= r_->summary))                                  \
				return 0;                                                   \
		}                                                                           \
	} while (0)

/* The rules of a word that match. */
static __always_inline __u64 gate_word(const struct gate_matching *m,
				       const volatile struct gate_table *t, __u32 n)
{
	__u64 word = ~0ULL;

#pragma unroll
	for (int i = 0; i < GATE_USED; i++) {
		const struct gate_line *line;
		__u32 at, number;

		if (!(t->used & 1 << i))
			continue;
		at = m->first[i] + n;
		number = at / GATE_LINE_WORDS;
		line = bpf_map_lookup_elem(&gate_lines, &number);
		if (!line || !(word &= line->word[at % GATE_LINE_WORDS]))
			return 0;
	}
	return word;
}

/* The packet meets the rules of the words that are left of a group, in order. 0: none has decided. Verified alone. */
__feature(FEATURE_GATE) __noinline int gate_meet_group(struct gate_facts *f, __u32 copy)
{
	const volatile struct gate_table *t = &gate.table[copy & 1];
	struct gate_matching *m = SCRATCH(struct gate_matching, gate_matching);
	__u64 word;
	__u32 n;
	int action;

	if (!f || !m)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < 1 << GATE_GROUP_SHIFT; i++) {
		n = WHOLE(m->word);
		word = gate_word(m, t, n);
		if (word) {
			action = gate_meet(f, 64 * n, word);
			if (action)
				return action;
		}
		WHOLE(m->word) = n + 1;
		if (!(n + 1 & t->group_mask))
			return 0;
	}
	return 0;
}

/* Likewise, also of the groups behind. Verified alone. */
__feature(FEATURE_GATE) __noinline int gate_meet_groups(struct gate_facts *f, __u32 copy)
{
	const volatile struct gate_table *t = &gate.table[copy & 1];
	struct gate_matching *m = SCRATCH(struct gate_matching, gate_matching);
	__u64 matching;
	int action;

	if (!f || !m)
		return 0;
	action = t->group_mask ? gate_meet_group(f, copy) : 0;
#pragma clang loop unroll(disable)
	for (int i = 1; i < GATE_GROUPS && !action; i++) {
		matching = WHOLE(m->groups);
		matching &= matching - 1;
		if (!matching)
			return 0;
		WHOLE(m->groups) = matching;
		WHOLE(m->word) = gate_lowest(matching) * (t->group_mask + 1);
		action = gate_meet_group(f, copy);
	}
	return action;
}

/* The packet meets the rules of a word: most often the first of them decides, which takes no call. */
static __always_inline int gate_meet_first(struct gate_facts *f, __u32 first, __u64 word)
{
	__u32 n = f->rules + first + gate_lowest(word);
	const struct gate_rule *rule = bpf_map_lookup_elem(&gate_rules, &n);

	if (!rule || (rule->action != GATE_DROP && rule->action != GATE_PASS))
		return gate_meet(f, first, word);
	gate_count(rule->slot, f, rule->action == GATE_DROP);
	f->decided = rule->id;
	f->slot = rule->slot;
	return rule->action;
}

/* The rule that decides. Output: its action, or 0. At XDP without a call, which would take a fifth of the time. */
static __always_inline int gate_decide(struct gate_facts *f, struct gate_matching *m, __u32 copy,
				       __u32 iface_row)
{
	const volatile struct gate_table *t = &gate.table[copy & 1];
	__u64 matching = t->summary, word;
	__u32 first = t->row, used = t->used, n;
	int action;

	if (!f || !m)
		return 0;
	GATE_DIMENSIONS(GATE_KEEP);
	if (!matching)
		return 0;
	if (t->rules <= 64)
		return gate_meet_first(f, 0, matching);
	n = gate_lowest(matching) * (t->group_mask + 1);
	word = gate_word(m, t, n);
	action = word ? gate_meet_first(f, 64 * n, word) : 0;
	if (action || !(t->group_mask | (matching & matching - 1)))
		return action;
	WHOLE(m->groups) = matching;
	WHOLE(m->word) = n + 1;
	return gate_meet_groups(f, copy);
}

/* Likewise. Verified alone: at tc are many other stages. */
__feature(FEATURE_GATE) __noinline
	int gate_decide_alone(struct gate_facts *f, __u32 copy, __u32 iface_row)
{
	return gate_decide(f, SCRATCH(struct gate_matching, gate_matching), copy, iface_row);
}

/* A packet that has become an answer is in no flow: what an interface received stays the sum of what is counted. */
static __always_inline void gate_account(frame_ctx *ctx, const struct gate_facts *f,
					 __u32 direction, enum reason reason)
{
	count_some(iface_of(ctx), direction, reason, f->packets, 1, frame_len(ctx));
}

/* What gate_run() says: the action, above it enum gate_mark, `slot` of what was read, and the id of the rule that decided. */
#define GATE_MARKS_SHIFT 8
#define GATE_SLOT_SHIFT 16
#define GATE_DECIDED_SHIFT 32

/* Packets that met the rules at XDP meet them at tc again, only for what they say of flow records. */
static __always_inline bool gate_is_again(const volatile struct gate_iface *iface,
					  const volatile struct gate_table *t, __u32 hook)
{
	return hook == GATE_HOOK_TC && !(iface->hooks & GATE_HOOK_TC) && t->has;
}

/* A frame at a hook. */
static __always_inline __u64 gate_run(frame_ctx *ctx, __u32 hook)
{
	__u32 copy = gate.copy & 1;
	const volatile struct gate_iface *iface = gate_iface_of(copy, iface_of(ctx));
	const volatile struct gate_table *t = &gate.table[copy & 1];
	struct gate_matching *m = NULL;
	struct scratch *memory;
	struct gate_facts *f;
	__u32 tci, entry;
	bool again = false;
	int action;

	if (!iface)
		return GATE_PASS;
	/* Here, and as one word: the verifier follows no place of the interface through what comes, and it takes less stack. */
	entry = *(const volatile __u32 *)&iface->row;
	if (!(iface->hooks & hook)) {
		if (!gate_is_again(iface, t, hook))
			return GATE_PASS;
		again = true;
	}
	memory = scratch_all();
	if (hook == GATE_HOOK_XDP)
		m = PART_OF(memory, struct gate_matching, gate_matching);
	f = PART_OF(memory, struct gate_facts, gate_seen);
	if (!f) /* unreachable; satisfies the verifier */
		return GATE_PASS;
	*f = (struct gate_facts){};
	if (!gate_read_fast(ctx, f))
		gate_read(ctx, f);
	/* Outside of the frame: it is the outer one, whatever else the frame has. */
	if (t->used & GATE_USES_NUMBER << GATE_VLAN && frame_hint_tag(ctx, &tci)) {
		f->tagged = true;
		f->vlan = tci & 0xfff;
	}
	f->quiet = again;
	f->packets = segments_of(ctx);
	f->rules = t->rule;
	if (!f->ip) {
		gate_count(GATE_SLOT_NOT_IP, f, false);
		if (gate.capture && !again)
			gate_capture(ctx, f, GATE_PASS, hook);
		return GATE_PASS;
	}
	action = GATE_DROP;
	if (again || !gate_is_banned(f, copy)) {
		action = hook == GATE_HOOK_XDP ? gate_decide(f, m, copy, (__u16)entry)
					       : gate_decide_alone(f, copy, (__u16)entry);
		if (!action)
			gate_count(GATE_SLOT_PASSED, f, false);
	}
	if (t->has & GATE_HAS_ONLY_FLOW && !(f->marks & GATE_MARK_FLOW_KNOWN))
		f->marks |= GATE_MARK_NO_FLOW;
	if (again)
		return f->marks << GATE_MARKS_SHIFT | GATE_PASS;
	if ((action & GATE_ACTION_MASK) == GATE_SYNCOOKIE)
		action = gate_cookie(ctx, f, action >> GATE_NUMBER_SHIFT, entry >> 24);
	if (action == GATE_ANSWER)
		gate_account(ctx, f, DIRECTION_INGRESS, REASON_ANSWERED_BY_RULE);
	if (action == GATE_ANSWER && FRAME_WRITABLE) /* tc egress sees no answer of XDP */
		gate_account(ctx, f, DIRECTION_EGRESS, REASON_ANSWERED_BY_RULE);
	if (gate.capture && action != GATE_ANSWER)
		gate_capture(ctx, f, action ?: GATE_PASS, hook);
	/* The tag may be outside of the frame. */
	if (f->exempt || t->used & GATE_USES_NUMBER << GATE_VLAN)
		f->slot = 0;
	return (__u64)f->decided << GATE_DECIDED_SHIFT | f->slot << GATE_SLOT_SHIFT |
	       f->marks << GATE_MARKS_SHIFT | (action ?: GATE_PASS);
}

/* What becomes of the frame. place: at XDP only. Output: GATE_PASS, GATE_DROP or GATE_ANSWER, and enum gate_mark. */
static __always_inline __u32 gate_verdict(frame_ctx *ctx, const struct gate_place *place,
					  __u64 decision, __u8 *marks)
{
	__u32 action = (__u8)decision, rule = decision >> GATE_DECIDED_SHIFT;

	*marks = decision >> GATE_MARKS_SHIFT;
	if (action != GATE_DROP)
		return action;
	if (*marks & GATE_MARK_NO_FLOW)
		count(ctx, DIRECTION_INGRESS, REASON_NO_FLOW);
	else if (!place || !gate_drop_known(ctx, place, rule, (__u16)(decision >> GATE_SLOT_SHIFT)))
		gate_drop(ctx, rule);
	return action;
}

#endif

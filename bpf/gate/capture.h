/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Capture: packets with their verdict, for those who ask (waymark capture).
 *
 * Input: a frame, and what the rules say of it. Output: an element of a ring, or a count of what was not
 * captured. The ring is there only while somebody captures. Called by decide.h, before the frame changes.
 */
#ifndef WAYMARK_GATE_CAPTURE_H
#define WAYMARK_GATE_CAPTURE_H

/* One ring, struct gate_packet with bytes; none while nobody captures. Added and removed by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_RINGBUF);
			__uint(max_entries, 1 << 22);
		});
} gate_rings SEC(".maps");

/* Written by the programs, read by the agent; running totals. One element. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_captured);
} gate_captures SEC(".maps");

/* Copies the frame into an element of constant size. Not 0 where the ring is full. */
static __always_inline int gate_capture_into(frame_ctx *ctx, void *ring,
					     const struct gate_packet *head, const __u32 size)
{
	struct gate_packet *p = bpf_ringbuf_reserve(ring, sizeof(*p) + size, 0);
	__u32 last = head->length - 1;

	if (!p)
		return -1;
	*p = *head;
	if (last > size - 1)
		last = size - 1;
	/* Linux 6.1 learns from this comparison that there is a byte, and not from one with 0. */
	barrier_var(last);
	if (last >= size || frame_load(ctx, 0, p + 1, last + 1))
		p->captured = 0;
	else
		p->captured = last + 1;
	bpf_ringbuf_submit(p, 0);
	return 0;
}

/* Elements have one of a few sizes, which the verifier has to know. */
#define GATE_CAPTURE_SMALL (256 - sizeof(struct gate_packet))
#define GATE_CAPTURE_USUAL (2048 - sizeof(struct gate_packet))
#define GATE_CAPTURE_LARGE (16384 - sizeof(struct gate_packet))

static __always_inline int gate_capture_frame(frame_ctx *ctx, void *ring,
					      const struct gate_packet *head, __u32 snap)
{
	__u32 n = head->length < snap ? head->length : snap;

	if (n <= GATE_CAPTURE_SMALL)
		return gate_capture_into(ctx, ring, head, GATE_CAPTURE_SMALL);
	if (n <= GATE_CAPTURE_USUAL)
		return gate_capture_into(ctx, ring, head, GATE_CAPTURE_USUAL);
	return gate_capture_into(ctx, ring, head, GATE_CAPTURE_LARGE);
}

/* The bucket of captured packets: no rule has the slot. */
#define GATE_CAPTURE_BUCKET GATE_SLOT_PASSED

/* Whether somebody captures such packets. */
static __always_inline bool gate_is_captured(const struct gate_facts *f, __u32 action)
{
	__u32 what = action == GATE_DROP ? GATE_CAPTURE_DROPPED : GATE_CAPTURE_PASSED;

	if (f->marks & GATE_MARK_SAMPLED)
		what |= GATE_CAPTURE_SAMPLED;
	return gate.capture & what;
}

/* Verified alone. */
__feature(FEATURE_GATE) __noinline
	int gate_capture(frame_ctx *ctx, const struct gate_facts *f, __u32 action, __u32 hook)
{
	struct gate_captured *count;
	struct gate_packet *head;
	__s64 now, *bucket;
	__u32 zero = 0, slot = GATE_CAPTURE_BUCKET;
	void *ring;

	if (!f || !gate_is_captured(f, action))
		return 0;
	count = bpf_map_lookup_elem(&gate_captures, &zero);
	ring = bpf_map_lookup_elem(&gate_rings, &zero);
	bucket = bpf_map_lookup_elem(&gate_buckets, &slot);
	if (!count || !ring || !bucket)
		return 0;
	now = bpf_ktime_get_ns();
	if (gate_take(bucket, now, 1000000000, gate.capture_cost)) {
		count->limited++;
		return 0;
	}
	head = &count->head;
	__builtin_memset(head, 0, sizeof(*head));
	head->time = now;
	head->iface = iface_of(ctx);
	head->decided = f->decided;
	head->sampled = f->sampled;
	head->length = frame_len(ctx);
	head->packets = f->packets;
	head->action = action;
	head->hook = hook;
	head->no_link = cfg_features & FEATURE_NO_LINK ? 1 : 0;
	gate_capture_hints(ctx, head);
	if (gate_capture_frame(ctx, ring, head, gate.capture_snap))
		count->full++;
	else
		count->packets++;
	return 0;
}

#endif

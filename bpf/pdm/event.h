/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Marked packets one by one, on request (cfg_pdm_raw).
 *
 * Input: a packet that was marked or read. Output: an event in the ring, unless this
 * CPU has reached its limit for this second. Called last by both stages.
 */
#ifndef WAYMARK_PDM_EVENT_H
#define WAYMARK_PDM_EVENT_H

/* Written by the programs, read by the agent. When full, events_lost counts. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} pdm_events SEC(".maps");

static __always_inline bool take_rate(__u64 now)
{
	__u64 second = now / 1000000000;
	struct pdm_work *work = get_work();

	if (!work)
		return false;
	if (work->rate.second != second) {
		work->rate.second = second;
		work->rate.reported = 0;
	}
	return work->rate.reported++ < cfg_pdm_raw;
}

/* A slot in the ring with what all events have, or NULL. */
static __noinline struct pdm_event *begin_event(const struct packet *p, const struct mark_key *key,
						__u64 now)
{
	struct pdm_event *e;

	e = take_rate(now) ? bpf_ringbuf_reserve(&pdm_events, sizeof(*e), 0) : NULL;
	if (!e) {
		PDM_STAT_ADD(events_lost, 1);
		return NULL;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->time = now;
	e->key = *key;
	e->iface = p->id.iface;
	e->direction = p->id.meta & 1;
	return e;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Server delay and network round trip, from a packet that answers the one last
 * sent (RFC 8250 section 1.5).
 *
 * In: a received option, and the flow's state. Out: what it reports, in the flow's
 * histograms of this epoch. Called by the reading stage, under the state's lock.
 * The same steps as inband.Endpoint.
 */
#ifndef WAYMARK_PDM_DELAY_H
#define WAYMARK_PDM_DELAY_H

/*
 * Delays by state and epoch, made by a flow's first answer in an epoch. Written
 * by the programs; the agent reads and deletes those of the epoch that rests, so
 * also those of states that are gone. Not allocated beforehand. When full,
 * pdm_totals.delays_lost counts the samples.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct pdm_delays_key);
	__type(value, struct pdm_flow_delays);
} pdm_delays SEC(".maps");

/*
 * How far two clocks may run apart: both slewed at the 500 ppm that NTP may, in
 * opposite directions. It covers what scaling drops, too.
 */
#define DRIFT_SHIFT 10

#define HAS_SERVER 1
#define HAS_NETWORK 2

static __always_inline void histogram_add(struct pdm_histogram *h, __u64 ns)
{
	if (!h->count || ns < h->min)
		h->min = ns;
	if (ns > h->max)
		h->max = ns;
	h->count++;
	h->sum = h->sum + ns < ns ? ~0ULL : h->sum + ns;
	histogram_count(h->bucket, ns);
}

static __noinline int add_delays(struct pdm_work *work, const struct pdm_state *s)
{
	const struct pdm_sample *sample = &work->sample;
	struct pdm_delays_key at = { .id = s->id, .epoch = current_epoch != 0 };
	struct pdm_flow_delays *d, *fresh = &work->no_delays;

	d = bpf_map_lookup_elem(&pdm_delays, &at);
	if (!d) {
		fresh->key = work->key;
		fresh->in_iface = s->in_iface;
		fresh->in_meta = s->in_meta;
		fresh->in_dport = s->in_dport;
		bpf_map_update_elem(&pdm_delays, &at, fresh, BPF_NOEXIST);
		d = bpf_map_lookup_elem(&pdm_delays, &at);
		if (!d) {
			PDM_STAT_ADD(delays_lost, 1);
			return 0;
		}
	}
	if (sample->has & HAS_NETWORK)
		histogram_add(&d->network, sample->network);
	if (sample->has & HAS_SERVER)
		histogram_add(&d->server, sample->server);
	return 0;
}

/* What is behind more missing packets than this gives no round trip. */
#define SAMPLE_AHEAD 8

/*
 * Whether a packet that was believed may tell delays: where a forged one needs
 * both numbers.
 */
static __always_inline bool has_delays(const struct pdm_state *s, __u8 arrival, __u16 d)
{
	return !s->contested && arrival <= ARRIVAL_RESTART &&
	       !(arrival == ARRIVAL_GAP && d > SAMPLE_AHEAD);
}

/* Fills in the second half of the sample; the first came with the packet. */
static __always_inline void measure_delays(struct pdm_state *s, struct pdm_sample *sample,
					   __u64 now)
{
	const struct pdm_option *o = &sample->option;
	__u64 tx = WHOLE(s->tx), rx = WHOLE(s->rx), elapsed, server;
	__u16 last = tx, d;
	bool answer, first;

	if (rx && since(now, rx) > cfg_pdm_lifetime)
		sequence_forget(s);
	sample->named = packet_named(s, o);
	d = o->psntp - s->highest;
	sample->arrival = sequence_observe(s, sample, now);
	if (sample->arrival < ARRIVAL_LATE || !s->rounds)
		WHOLE(s->rx) = stamp(now, o->psntp);
	if (sample->arrival < ARRIVAL_LATE)
		WHOLE(s->heard) = sample->bare ? HEARD_NOTHING : HEARD_DATA;
	if (sample->arrival == ARRIVAL_WILD) {
		sample->suspicion = SUSPICION_PSN;
		return;
	}
	if (sample->arrival > ARRIVAL_RESTART)
		return;
	if (s->missed | s->missed_far)
		take_missed(s, d);
	if (!tx || !has_received(o))
		return;
	if (o->psnlr != last) {
		/* Another processor may have sent since, or be about to note it. */
		if ((__s16)(o->psnlr - (__u16)(WHOLE(s->psn) - 1)) > 0)
			sample->suspicion = SUSPICION_PSN;
		else
			s->discarded++;
		return;
	}
	if (!has_delays(s, sample->arrival, d))
		return;
	answer = !sample->bare && WHOLE(s->request) == tx && s->answered != tx;
	if (s->acknowledged == tx && !answer) /* all that it reports is known */
		return;
	elapsed = since(now, tx);
	if (elapsed >= AGE_MAX) /* it is older than that */
		return;
	server = pdm_nanoseconds(o->dtlr.delta, o->dtlr.scale);
	if (server > elapsed && server - elapsed > elapsed >> DRIFT_SHIFT) {
		sample->suspicion = SUSPICION_TIME;
		return;
	}
	if (s->acknowledged != tx) {
		s->acknowledged = tx;
		sample->network = server < elapsed ? elapsed - server : 0;
		sample->has = HAS_NETWORK;
	}
	if (!answer)
		return;
	s->answered = tx;
	/*
	 * Behind a missing packet this may not be the first of an answer, and its
	 * DTLR would count the time since that one, too.
	 */
	first = sample->arrival == ARRIVAL_FIRST || sample->arrival == ARRIVAL_RESTART;
	if (sample->arrival == ARRIVAL_IN_ORDER || (first && !o->dtls.scale)) {
		sample->server = server;
		sample->has |= HAS_SERVER;
	}
}

#endif

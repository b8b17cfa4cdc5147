// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Programs that are run by BPF_PROG_TEST_RUN and never attached: the hook at
 * egress with a clock that tests set, and the numbers and steps of PDM on many
 * cases at a time, which tests compare with wire/pdm and internal/inband.
 */
#include "prelude.h"
#include "abi.h"
#include "config.h"
#include "test/pdm_clock.h"
#include "probe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int test_egress(struct __sk_buff *skb)
{
	return probe(skb, DIRECTION_EGRESS);
}

#define TEST_CASES 4096

/* One time, there and back. */
struct test_number {
	__u64 ns;
	__u64 back; /* of the delta and scale that come next */
	__u16 delta;
	__u8 scale;
	__u8 out_scale; /* of ns */
	__u16 out_delta;
	__u16 bucket;
	__u16 burst_delta; /* of ns, as the DTLS of a burst */
	__u8 burst_scale;
	__u8 zero[5];
};

struct test_number test_numbers[TEST_CASES] SEC(".data.numbers");

__noinline int number(struct test_number *n)
{
	struct pdm_option o = {};
	struct pdm_words w;

	if (!n)
		return 0;
	o.dtls = pdm_scale(n->ns);
	n->out_delta = o.dtls.delta;
	n->out_scale = o.dtls.scale;
	w.numbers = (__u64)o.dtls.scale << WORDS_DTLS_SCALE;
	w.deltas = o.dtls.delta;
	suit_routers(&w);
	words_unpack(&w, &o);
	n->burst_delta = o.dtls.delta;
	n->burst_scale = o.dtls.scale;
	n->bucket = delay_bucket(n->ns);
	n->back = pdm_nanoseconds(n->delta, n->scale);
	return 0;
}

SEC("tc")
int test_scale(struct __sk_buff *skb)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < TEST_CASES; i++)
		number(&test_numbers[i]);
	return TC_ACT_UNSPEC;
}

enum test_step { STEP_NONE, STEP_BEGIN, STEP_SEND, STEP_RECEIVE };

/* One step of a flow's state: a packet sent or received. */
struct test_event {
	__u64 now;
	__u64 server;
	__u64 network;
	struct pdm_option option; /* received, or sent */
	__u32 word;
	__u32 step; /* enum test_step */
	__u8 arrival;
	__u8 suspicion;
	__u8 has;
	__u8 bare;
	__u8 zero[4];
};

struct test_event test_events[TEST_CASES] SEC(".data.events");
struct pdm_state test_state SEC(".data.state");

__noinline int step(struct test_event *e)
{
	struct pdm_sample sample = {};
	struct pdm_state *s = &test_state;
	struct pdm_words w;

	if (!e)
		return 0;
	switch (e->step) {
	case STEP_BEGIN:
		__builtin_memset(s, 0, sizeof(*s));
		s->psn = e->option.psntp;
		s->psn_first = s->psn;
		break;
	case STEP_SEND:
		w = pdm_send(s, e->now, !e->bare);
		words_unpack(&w, &e->option);
		break;
	case STEP_RECEIVE:
		sample.option = e->option;
		sample.word = e->word;
		sample.bare = e->bare;
		measure_delays(s, &sample, e->now);
		s->suspicious += sample.suspicion != SUSPICION_NONE;
		e->server = sample.server;
		e->network = sample.network;
		e->arrival = sample.arrival;
		e->suspicion = sample.suspicion;
		e->has = sample.has;
		break;
	}
	return 0;
}

SEC("tc")
int test_steps(struct __sk_buff *skb)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < TEST_CASES; i++)
		step(&test_events[i]);
	return TC_ACT_UNSPEC;
}

/* What every other program is measured over. */
SEC("tc")
int test_empty(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

/* Brings types into the debug information that the Go ones are made from. */
struct test_abi {
	enum test_step test_step;
};
const struct test_abi *const test_abi __attribute__((unused));

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The balancer: packets to the address of a service go to one of its backends, which answers clients itself (direct server
 * return).
 *
 * Input: a frame that rules let pass, at an interface of the balancer or of a backend. Output: XDP_TX or XDP_REDIRECT and
 * the frame for a backend, or an answer; XDP_DROP, with a reason; or XDP_PASS, and the frame as it came or, at a backend,
 * without its outer header. What is for no service is not touched. Called by xdp.bpf.c.
 */
#ifndef WAYMARK_BALANCE_H
#define WAYMARK_BALANCE_H

#include "balance/config.h"
#include "balance/view.h"
#include "balance/pick.h"
#include "balance/quic.h"
#include "balance/hop.h"
#include "balance/wrap.h"
#include "balance/unwrap.h"
#include "balance/answer.h"
#include "balance/error.h"
#include "balance/account.h"

_Static_assert((int)BALANCE_OTHER_MAC == (int)FORWARD_OTHER_MAC &&
		       (int)BALANCE_VLAN == (int)FORWARD_VLAN &&
		       (int)BALANCE_TAG_UNKNOWN == (int)FORWARD_TAG_UNKNOWN &&
		       (int)BALANCE_NOT_IP == (int)FORWARD_NOT_IP,
	       "port_accepts() says why");

struct balance_all_known {
	struct balance_known one[BALANCE_KNOWN];
};

/* The service of the tuple. A lookup in the map takes as long as a tenth of all else, and most packets are to few services. */
static __always_inline struct balance_service *balance_service_of(struct balance_view *v)
{
	struct balance_all_known *all = SCRATCH(struct balance_all_known, balance_known);
	const __u64 *half = (const void *)v->key.addr, *known;
	__u32 version = balance_memory.version, last;
	struct balance_service *s;
	struct balance_known *k;

	__builtin_memcpy(v->key.addr, v->tuple.daddr, sizeof(v->key.addr));
	v->key.port = v->tuple.dport;
	v->key.proto = v->tuple.proto;
	v->key.zero = 0;
	last = *(const __u32 *)&v->key.port;
	if (!all) /* unreachable; satisfies the verifier */
		return NULL;
	k = &all->one[((half[1] >> 56) ^ (last >> 8)) & (BALANCE_KNOWN - 1)];
	known = (const void *)k;
	if (!((known[0] ^ half[0]) | (known[1] ^ half[1]) | (*(const __u32 *)&k->key.port ^ last) |
	      (k->version ^ version)) &&
	    version)
		return &k->service;
	s = bpf_map_lookup_elem(&balance_services, &v->key);
	if (!s)
		return NULL;
	k->version = 0;
	k->key = v->key;
	k->service = *s;
	k->version = version;
	return &k->service;
}

/* What connection the packet is of, or about. */
static __always_inline enum balance_result balance_read(frame_ctx *xdp, struct balance_view *v,
							struct packet *p)
{
	enum forward_result frame =
		port_accepts(xdp, &balance_memory.ports[v->place & (FORWARD_PORTS - 1)], v->dry);

	if (frame != FORWARD_DONE)
		return (enum balance_result)frame;
	if (!parse_fast(xdp, DIRECTION_INGRESS, cfg_features, p) &&
	    parse(xdp, DIRECTION_INGRESS, p) != PARSE_OK)
		return BALANCE_MALFORMED;
	if (cfg_features & FEATURE_TUNNELS && p->id.meta >> META_TUNNEL_SHIFT & 7)
		return BALANCE_TUNNEL;
	if (balance_is_error(p))
		return balance_quoted(xdp, p, v) ? BALANCE_DONE : BALANCE_NO_SERVICE;
	__builtin_memcpy(&v->tuple, &p->id, offsetof(struct balance_tuple, proto));
	v->tuple.proto = p->id.proto;
	return BALANCE_DONE;
}

/* What becomes of a packet when no backend takes it. */
static __always_inline enum balance_result
balance_none(frame_ctx *xdp, const struct balance_view *v, struct packet *p, __u8 none)
{
	bool plain = !p->fragment &&
		     p->l4_offset == sizeof(struct ethhdr) + (p->id.meta >> META_IPV6_SHIFT & 1
								      ? sizeof(struct ipv6hdr)
								      : sizeof(struct iphdr));
	int rc = -1;

	if (none == BALANCE_NONE_PASS)
		return BALANCE_NONE_PASSED;
	if (none != BALANCE_NONE_RESET || !plain || p->id.tcp_flags & BALANCE_RST ||
	    !balance_may_answer(v, false))
		return BALANCE_NONE_DROPPED;
	if (p->id.proto == IPPROTO_TCP)
		rc = balance_reset(xdp, p);
	else if (p->id.proto == IPPROTO_UDP)
		rc = balance_complain(xdp, p, 0);
	return rc ? BALANCE_NONE_DROPPED : BALANCE_REFUSED;
}

/* Sends a packet to its backend. */
static __always_inline enum balance_result balance_send(frame_ctx *xdp, struct balance_view *v,
							struct packet *p, struct balance_backend *b)
{
	struct balance_hop *hop = NULL;
	enum balance_result result = balance_hop_of(xdp, v, b, &hop);

	if (result != BALANCE_DONE)
		return result;
	if (!hop)
		return BALANCE_LOOKUP;
	v->added = balance_added(b);
	if (v->added + p->id.bytes > hop->mtu) {
		if (!balance_may_answer(v, balance_is_error(p)))
			return BALANCE_UNANSWERED;
		v->mtu = hop->mtu - v->added;
		return balance_complain(xdp, p, v->mtu) ? BALANCE_UNWRITABLE : BALANCE_TOO_BIG;
	}
	return balance_write(xdp, v, b, p, hop) ? BALANCE_UNWRITABLE : BALANCE_DONE;
}

static __always_inline void balance_load_add(const struct balance_view *v, __u32 bytes)
{
	__u32 number = v->backend;
	struct balance_load *load = bpf_map_lookup_elem(&balance_loads, &number);

	if (!load)
		return;
	load->packets++;
	load->bytes += bytes;
}

/* A packet to a service, from here on. */
static __always_inline enum balance_result balance_serve(frame_ctx *xdp, struct balance_view *v,
							 const struct balance_service *s,
							 struct flow_batch *batch, struct packet *p,
							 bool recorded)
{
	bool error = balance_is_error(p);
	enum balance_result result;
	struct balance_backend *b;

	if (p->fragment == FRAGMENT_LATER && !p->id.sport)
		return BALANCE_FRAGMENT;
	if (!p->fragment && v->flags & FORWARD_VIRTUAL && !port_is_complete(xdp, p))
		return BALANCE_CHECKSUM;
	v->tcp_flags = p->id.proto == IPPROTO_TCP ? p->id.tcp_flags : 0;
	v->hash = balance_hash(&v->tuple, s->seed);
	v->now = (__u32)bpf_jiffies64() >> cfg_balance_shift;
	if (balance_memory.now != v->now && !v->dry)
		balance_memory.now = v->now;
	if (error || !balance_quic(xdp, p, s, v)) {
		if (!balance_pick(v, !error && !v->dry)) {
			result = error ? BALANCE_NONE_DROPPED : balance_none(xdp, v, p, s->none);
			goto end;
		}
	}
	b = balance_backend_of(v->backend);
	if (!b) /* unreachable; satisfies the verifier */
		return BALANCE_CPU;
	result = balance_send(xdp, v, p, b);
	if (v->dry)
		return result;
	if (result == BALANCE_DONE) {
		balance_load_add(v, p->id.bytes);
		balance_account(xdp, v, b, batch, p, recorded);
		return result;
	}
end:
	if (result > BALANCE_LAST_PASSED && !v->dry)
		balance_ended(xdp, batch, p, result < BALANCE_NONE_DROPPED ? frame_len(xdp) : 0,
			      recorded);
	return result;
}

static __always_inline enum balance_result balance_try(frame_ctx *xdp, struct balance_view *v,
						       bool recorded)
{
	const struct balance_service *s;
	enum balance_result result;
	struct flow_batch *batch;
	struct packet *p;

	batch = current_batch();
	if (!batch)
		return BALANCE_CPU;
	p = batch_next(batch);
	result = balance_read(xdp, v, p);
	if (result != BALANCE_DONE)
		return result;
	s = balance_service_of(v);
	if (!s)
		return BALANCE_NO_SERVICE;
	v->number = s->number;
	return balance_serve(xdp, v, s, batch, p, recorded);
}

/* The note of a dry run. XDP_PASS: the packet goes on. */
static __always_inline int balance_note(frame_ctx *xdp, const struct balance_view *v,
					enum balance_result result)
{
	struct dry_note *note = frame_dry_note(xdp);
	struct dry_backend *to;

	if (note) {
		note->balance = 1 + result;
		note->mtu = v->mtu;
		note->out = v->ifindex;
		to = (struct dry_backend *)note->next_hop;
		to->service = v->number;
		to->backend = v->backend;
		to->choice = v->choice;
	}
	return result && result <= BALANCE_LAST_PASSED ? XDP_PASS : XDP_DROP;
}

/* The verdict of XDP. flags: enum run_flag. Verified alone. */
__feature(FEATURE_BALANCE) __noinline int balance(frame_ctx *xdp, __u32 flags)
{
	struct balance_view *v = SCRATCH(struct balance_view, balance_view);
	enum balance_result result = BALANCE_NO_SERVICE;
	struct balance_count *count;

	if (cfg_features & FEATURE_NO_LINK || !v)
		return XDP_PASS;
	if (flags & RUN_DRY) /* its note tells also what others leave as it was */
		__builtin_memset(v, 0, sizeof(*v));
	v->number = BALANCE_SERVICES;
	v->place = port_place(balance_memory.ports, iface_of(xdp));
	if (v->place >= FORWARD_PORTS)
		return XDP_PASS;
	v->flags = balance_memory.ports[v->place & (FORWARD_PORTS - 1)].flags;
	v->len = frame_len(xdp);
	v->dry = flags & RUN_DRY;
	if (v->flags & BALANCE_UNWRAPS &&
	    port_accepts(xdp, &balance_memory.ports[v->place & (FORWARD_PORTS - 1)], v->dry) ==
		    FORWARD_DONE)
		result = balance_unwrap(xdp);
	if (v->flags & BALANCE_CLIENTS && result == BALANCE_NO_SERVICE)
		result = balance_try(xdp, v, !(flags & RUN_UNRECORDED));
	if (v->dry)
		return balance_note(xdp, v, result);
	count = balance_count_of(v);
	if (count && result < BALANCE_RESULTS)
		count->packets[result]++;
	if (result > BALANCE_REFUSED)
		return XDP_DROP;
	if (result == BALANCE_DONE)
		return balance_turns(xdp, v) ? XDP_TX : XDP_REDIRECT;
	if (result <= BALANCE_LAST_PASSED)
		return XDP_PASS;
	v->ifindex = xdp->ingress_ifindex; /* an answer */
	return balance_turns(xdp, v)
		       ? XDP_TX
		       : bpf_redirect_map(&balance_out, cfg_iface + v->ifindex, XDP_DROP);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What is known of a packet that may be for a service, in the working memory of a CPU. */
#ifndef WAYMARK_BALANCE_VIEW_H
#define WAYMARK_BALANCE_VIEW_H

/* A connection, from the client to the service. */
struct balance_tuple {
	__u8 saddr[16];
	__u8 daddr[16];
	__be16 sport;
	__be16 dport;
	__u32 proto;
};

struct balance_view {
	struct bpf_fib_lookup fib;
	struct balance_tuple tuple;
	struct balance_key key;
	__u64 hash; /* of the tuple */
	__u32 place; /* of the interface where it arrived, in balance_memory.ports */
	__u32 flags; /* and what that does */
	__u32 now; /* in units of balance_entry */
	__u32 number; /* of the service; BALANCE_SERVICES: it is for none */
	__u32 backend; /* its number */
	__u32 len; /* of the frame */
	__u32 mtu; /* what the backend takes of a packet, when this one is too big */
	__u32 tcp_flags; /* and those of the connection are to be followed; or 0 */
	__u32 ifindex; /* where it leaves */
	__u32 added; /* bytes in front of the packet, without link header */
	__u32 dry; /* RUN_DRY, or 0 */
	__u32 choice; /* of a dry run: enum dry_choice */
};

/* FIN, SYN, RST and ACK of a TCP header. */
enum balance_tcp { BALANCE_FIN = 1, BALANCE_SYN = 2, BALANCE_RST = 4, BALANCE_ACK = 16 };

static __always_inline bool balance_opens(const struct balance_view *v)
{
	return (v->tcp_flags & (BALANCE_SYN | BALANCE_ACK)) == BALANCE_SYN;
}

/*
 * Whether the frame leaves where it came, by XDP_TX. At veth, the other end is not woken up by that unless it runs a program
 * at XDP.
 */
static __always_inline bool balance_turns(const frame_ctx *xdp, const struct balance_view *v)
{
	return v->ifindex == xdp->ingress_ifindex && !(v->flags & FORWARD_VIRTUAL);
}

/* Whether the client can get an answer: never one to an ICMP error (RFC 1122 section 3.2.2). */
static __always_inline bool balance_may_answer(const struct balance_view *v, bool error)
{
	return !error && (!(v->flags & FORWARD_VIRTUAL) || v->flags & FORWARD_SENDS);
}

static __always_inline struct balance_count *balance_count_of(const struct balance_view *v)
{
	__u32 index = v->number < BALANCE_SERVICES ? FORWARD_PORTS + v->number : v->place;

	return bpf_map_lookup_elem(&balance_counts, &index);
}

#define BALANCE_COUNT(v, field)                                 \
	do {                                                    \
		struct balance_count *c_ = balance_count_of(v); \
		if (c_)                                         \
			c_->field++;                            \
	} while (0)

#endif

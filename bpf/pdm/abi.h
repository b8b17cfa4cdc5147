/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The part of abi.h that PDM (RFC 8250) needs: state, delays, policy, counts.
 * Times are CLOCK_MONOTONIC in nanoseconds unless said otherwise.
 */
#ifndef WAYMARK_PDM_ABI_H
#define WAYMARK_PDM_ABI_H

/*
 * A time and the number that goes with it in one word, so that no reader sees
 * half of them: ns << PSN_BITS | PSN. The time wraps after 78 hours, PSN_BITS
 * below the longest lifetime of a state. 0 stands for "never".
 */
enum stamp { PSN_BITS = 16, CLOCK_AHEAD_SHIFT = 40 };

/*
 * What is kept of a flow that is marked. The first part is written when a packet
 * is sent, on any processor, so by atomic operations and whole words; only `rx`,
 * `echoed` and what follows that up to the guard come from the other side. The second
 * part is that of guard.h. The third is written when a packet is received, under `lock`.
 *
 * In the kernel's map 88 bytes are in front of a state, key included, and an element has whole
 * cache lines. What each packet needs is in few of them: those that end at bytes 40 and 104 are for
 * both directions, that from byte 232 on is for received packets.
 */
struct pdm_state {
	__u64 tx; /* stamp of the packet last sent */
	__u64 rx; /* stamp of the packet last received */
	__u64 rx_reported; /* rx when the last packet was sent */
	__u32 psn; /* low 16 bits: number of the next packet */
	__u32 psn_first; /* psn - psn_first packets were marked */
	__u64 until; /* when the policy ends */

	__u32 generation; /* of the policies that apply to this flow */
	__u32 out_iface; /* flow_slot.iface of the packet last sent */
	__u32 out_meta; /* flow_slot.meta, likewise */
	__be16 out_dport; /* flow_slot.dport, which ICMPv6 has its type in */
	__u16 zero2;
	__u64 request; /* tx, when that packet requested an answer */
	__u64 second; /* when the running second of the flow began; see limit.h */
	__u32 second_marks; /* packets marked since */
	__u32 echoed; /* packets sent up to the newest that the peer named */
	__u8 rounds; /* proofs that the peer is who sends these; see sequence.h */
	__u8 heard; /* enum heard */
	__u8 no_checksum; /* this host sends UDP without a checksum (RFC 6935) */
	__u8 contested; /* another sequence had a proof, too */
	__u32 proof_sent; /* packets sent when the last proof came */

	struct mark_guard guard;

	__u64 id; /* of this state: processor << STATE_CPU_SHIFT | number */
	__u64 answered; /* tx when the answer to it was measured */
	__u64 acknowledged; /* tx when its round trip was measured */
	__u32 policy;
	__u32 suspicious; /* running counts, as those at the end */
	__u64 lost; /* may fall: a packet that comes late was not lost */
	__u64 wild_since; /* ns, when the first packet of the sequence below came */

	__u32 lock;
	__u32 first_word; /* of the packet that had `highest` first */
	__u64 seen; /* bit i: the peer's number highest - i came */
	__u16 highest; /* newest number of the peer */
	__be16 in_dport;
	__u8 span; /* bits of `seen` that count; 0: no packet yet */
	__u8 burst; /* numbers until the peer is no longer known to mark bursts */
	__u16 zero;
	__u32 in_iface; /* where this flow's packets are read; 0: nowhere yet */
	__u32 in_meta;
	__u32 received; /* running count: those that were believed */
	__u32 wild_count; /* packets of a sequence that may replace this one; see below */
	/* Packets that came while another processor held the lock; see missed.h. */
	__u64 missed; /* bit -number % 64 */
	__u32 missed_far; /* not in `missed`: too far ahead */
	__u32 discarded; /* in order, but no answer to the packet last sent */

	/* A sequence that may replace this one, while wild_count is not 0. */
	__u64 wild_seen; /* bit i: number wild_next - 1 - i came */
	__u32 wild_lost; /* numbers missing between them */
	__u32 wild_sent; /* packets sent when its last proof came */
	__u16 wild_first; /* its first number */
	__u16 wild_next; /* the number that would follow */
	__u8 wild_rounds; /* its proofs */
	__u8 zero3[3];
	/* Running counts, which user space takes differences of. */
	__u32 reordered;
	__u32 duplicates;
	__u32 copies; /* further segments of one GSO burst */
	__u32 late;
	__u32 wild;
	__u32 restarts;
	__u64 zero4[3];
};

/* Of an element: what is in front of a state, and all of it. */
enum pdm_element { PDM_ELEMENT_BEFORE = 88, PDM_ELEMENT = 448, PDM_LINE = 64 };

_Static_assert(PDM_ELEMENT_BEFORE + sizeof(struct pdm_state) == PDM_ELEMENT &&
		       PDM_ELEMENT % PDM_LINE == 0,
	       "an element has whole cache lines");
_Static_assert((PDM_ELEMENT_BEFORE + offsetof(struct pdm_state, generation)) % PDM_LINE == 0 &&
		       (PDM_ELEMENT_BEFORE + offsetof(struct pdm_state, lock)) % PDM_LINE == 0,
	       "what each packet needs begins at cache lines");

/*
 * A place for a state that is found without a call. Its state is where that of an element of the map of
 * states is in its cache lines.
 */
struct pdm_near {
	__s64 owner; /* pdm_state.id; or NEAR_FREE, or NEAR_BUSY while the rest is written */
	__u64 entry; /* of the index, that names the place */
	__u64 zero[4];
	struct mark_key key;
	struct pdm_state state;
};

#define NEAR_BUSY (-1)
#define NEAR_FREE 0

/* Where pdm_words has what: see policy.h and near.h. */
enum pdm_word {
	UNNAMED_BITS = 16,
	WORD_INDEX = 1 << UNNAMED_BITS, /* cfg_pdm_index entries; freed places are behind them */
};

enum pdm_nears {
	/* Of the index, for each place: when all places are taken, one of nine flows met another in its entry. */
	NEAR_ENTRIES = 4,
	NEAR_NUMBER_BITS = 24, /* of a place, in such an entry; above are those of a hash */
};

/* What the processors share. Written by the programs. */
struct pdm_shared {
	__u64 fresh; /* places that were ever taken: the first ones */
	__u64 reused; /* times that one was taken again, in the order in which they were freed */
	__u64 budget; /* new states in the running second: second << 32 | number */
};

_Static_assert(sizeof(struct pdm_near) == PDM_ELEMENT &&
		       offsetof(struct pdm_near, state) == PDM_ELEMENT_BEFORE,
	       "a place has the layout of an element");

/* What came last, and what of the answer to it has left. */
enum heard {
	HEARD_NOTHING = 0, /* no data, or a marked packet answered it */
	HEARD_DATA, /* data: the next packet is the first of an answer */
	HEARD_SKIPPED, /* data, and the answer began without a mark */
};

enum state_id { STATE_CPU_SHIFT = 48 };

/* How the number of a packet follows those before it; see internal/inband. */
enum pdm_arrival {
	ARRIVAL_FIRST = 0,
	ARRIVAL_IN_ORDER,
	ARRIVAL_GAP,
	ARRIVAL_RESTART,
	ARRIVAL_REORDERED,
	ARRIVAL_DUPLICATE,
	ARRIVAL_COPY,
	/* Not believed: these change nothing of what is established. */
	ARRIVAL_LATE,
	ARRIVAL_WILD,
};

enum pdm_suspicion {
	SUSPICION_NONE = 0,
	SUSPICION_TIME, /* a delta longer than the time that passed */
	SUSPICION_PSN, /* a number out of all order, or never sent */
};

struct pdm_histogram {
	__u64 count;
	__u64 sum; /* ns, as are min and max */
	__u64 min;
	__u64 max;
	__u32 bucket[DELAY_BUCKETS];
};

/* The delays of one flow in one epoch; the half that rests is user space's. */
struct pdm_delays_key {
	__u64 id; /* pdm_state.id */
	__u32 epoch;
	__u32 zero;
};

struct pdm_flow_delays {
	struct pdm_histogram server; /* at the peer, from request to answer */
	struct pdm_histogram network; /* round trips without it */
	struct mark_key key;
	__u32 in_iface;
	__u32 in_meta;
	__be16 in_dport;
	__u8 zero[6];
};

/*
 * Policies. There are two sets, and the generation's lowest bit says which one
 * counts: user space fills the other and then raises the generation.
 */
enum policy {
	POLICIES_MAX = 64, /* a bit each in a word */
	POLICY_PORTS_MAX = 16,
};

struct policy_ports {
	__u16 from; /* host byte order */
	__u16 to; /* inclusive */
};

struct policy_rule {
	__u64 until;
	__u64 protos[4]; /* a bit for each protocol number */
	__u32 ports_len; /* 0: all */
	struct policy_ports ports[POLICY_PORTS_MAX];
	__u32 zero;
};

struct policy_prefix {
	__u32 bits; /* of set and address together */
	__u32 set;
	__u8 addr[16];
};

struct policy_mask {
	__u64 named; /* policies that may name a packet to this address */
	__u64 held; /* policies that cover the address, but don't mean it */
};

struct policy_iface {
	__u64 applies[2]; /* by set: a bit for each policy that applies on the interface */
};

/* Why a packet was not read or not stripped; from MARK_REASON_MAX, after those of enum mark_reason. */
enum pdm_reason {
	PDM_NO_STATE = MARK_REASON_MAX, /* of a flow that is not marked here */
	PDM_CHECKSUM, /* UDP without a checksum, which IPv6 does not allow */
	PDM_ELSEWHERE, /* read on another interface before */
	PDM_CONTENDED, /* other processors held the state for too long */
	PDM_NOT_STRIPPED, /* stays in the packet: other options are around it */
	PDM_REASON_MAX,
};

/* Running counts, per CPU. */
struct pdm_totals {
	__u64 marked; /* skbs */
	__u64 read;
	__u64 stripped;
	__u64 created; /* states; also the number in the newest id */
	__u64 refused; /* flows' packets that found the budget used up */
	__u64 renewed; /* states older than their lifetime, restarted */
	__u64 delays_lost; /* samples that did not fit into pdm_delays */
	__u64 events_lost; /* beyond the rate, or the ring was full */
	__u64 counts_full; /* skbs whose reason did not fit into pdm_counts */
};

/* Of one processor: struct pdm_work, of which user space reads the counts. One look-up finds all. */
struct pdm_cpu {
	struct pdm_totals totals;
	__u8 work[2432] __attribute__((aligned(8)));
};

/* One marked packet, on request. */
struct pdm_event {
	__u64 time;
	struct mark_key key;
	__u32 iface;
	__u8 direction; /* enum direction */
	__u8 arrival; /* enum pdm_arrival; ingress */
	__u8 suspicion; /* enum pdm_suspicion; ingress */
	__u8 has; /* bit 0: server, bit 1: network */
	__u64 server; /* ns */
	__u64 network; /* ns */
	__u8 option[12]; /* as on the wire */
	__u32 zero;
};

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How conversations begin: who is the initiator, and the round trip of TCP
 * handshakes. SYN to SYN-ACK is the way to the responder and back, SYN-ACK to ACK
 * the way to the initiator and back. Where the interface is an end of the
 * connection, one of the two is the whole path.
 *
 * Input: packets with SYN, the ACK that answers a SYN-ACK, and packets of all
 * other protocols. Output, in the packet: which part of a handshake it is, and the
 * two times; of other protocols the exact time of a flow's first packet, by which
 * user space orders the two halves of a conversation. A retransmitted SYN or
 * SYN-ACK gives no time (Karn).
 */
#ifndef WAYMARK_FLOW_HANDSHAKE_H
#define WAYMARK_FLOW_HANDSHAKE_H

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* A slot in use by a younger handshake than this counts as lost when taken. */
#define HANDSHAKE_LIFETIME 3000000000ULL

/*
 * Direct mapped by the hash of both ends; shared by all processors, since the
 * two directions arrive on different ones. Written and read by the programs.
 * When two handshakes meet, the later has the slot, and of the earlier a
 * fingerprint is kept. A flood fills the slots with these, and then handshakes
 * have no round trip, rather than a wrong one.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HANDSHAKES);
	__type(key, __u32);
	__type(value, struct handshake);
} handshakes SEC(".maps");

/*
 * By hash of the flow: not 0, and seven bits of the hash, where the ACK that ends
 * a handshake is still to come. In little memory, since every packet with ACK
 * looks here. When two handshakes meet, the earlier has no second round trip.
 */
__u8 expected_acks[HANDSHAKES] SEC(".data.handshake");

/*
 * By hash of the flow and interface: the other half of the hash, and a period of
 * a few seconds, of flows without TCP whose packets were seen in it. The halves of
 * a DNS exchange come within one tick, and the clock (28 ns) is read only for
 * packets whose flow is not here: once in each period.
 */
__u32 seen_flows[SEEN_FLOWS] SEC(".data.handshake");

/* So many in a tick: at 1000 Hz less than 1 % of a processor, whatever comes. */
#define EXACT_PER_TICK 256

/* A power of two of ticks: 1 s at 1000 Hz, 10 s at 100 Hz; below any idle timeout. */
#define SEEN_PERIOD_SHIFT 10

/* The packet has neither SYN nor ACK. */
static __always_inline void first_packet(struct flow_batch *batch, struct packet *p)
{
	__u32 index = (p->hash_low ^ p->id.iface) & (SEEN_FLOWS - 1);
	__u32 tag = p->hash_high + (p->id.last >> SEEN_PERIOD_SHIFT);

	if (p->id.proto == IPPROTO_TCP)
		return;
	if (batch->exact >= EXACT_PER_TICK && batch->tick == p->id.last) {
		/* Whether it is here does not matter, and could not be predicted (3 ns). */
		seen_flows[index] = tag;
		return;
	}
	if (seen_flows[index] == tag)
		return;
	seen_flows[index] = tag;
	if (batch->tick != p->id.last) {
		batch->tick = p->id.last;
		batch->exact = 0;
	}
	batch->exact++;
	p->first_ns = (__u32)bpf_ktime_get_ns() | 1; /* 0 is unknown */
}

static __always_inline __u64 end_hash(const void *address, __be16 port)
{
	return mix(nh_word(address, 0) + nh_word(address + 8, 2) + nh(port, 0, 4));
}

/* The same for both directions. */
static __always_inline __u64 handshake_hash(const struct flow_slot *id)
{
	return mix(end_hash(id->saddr, id->sport) + end_hash(id->daddr, id->dport) +
		   nh(id->iface, id->meta >> META_VLAN_SHIFT, 6));
}

/* The slot that announces the ACK of a flow with this hash, and the bits that identify it. */
static __always_inline __u32 ack_slot(__u32 hash_high)
{
	return hash_high >> 16;
}

static __always_inline __u8 ack_tag(__u32 hash_high)
{
	return hash_high >> 8 | 1;
}

static __always_inline __u32 elapsed(__u64 from, __u64 to)
{
	return to - from < 0xffffffff ? to - from : 0xffffffff;
}

/* A fingerprint is kept for 69 to 137 s: Linux retransmits a SYN for 63 s. */
#define LOST_PERIOD_SHIFT 36

/* Three bits for a handshake. */
static __always_inline __u64 fingerprint(__u64 hash, __u32 seq)
{
	__u64 h = mix(hash + seq);

	return 1ULL << (h >> 58) | 1ULL << (h >> 52 & 63) | 1ULL << (h >> 46 & 63);
}

/* True where the SYN may be a retransmission of one that lost this slot. */
static __always_inline bool was_lost(struct handshake *h, __u64 hash, __u32 seq, __u64 now)
{
	__u32 period = now >> LOST_PERIOD_SHIFT;
	__u64 bits = fingerprint(hash, seq);

	if (h->period != period) {
		h->lost_before = h->period + 1 == period ? h->lost : 0;
		h->lost = 0;
		h->period = period;
	}
	return (h->lost & bits) == bits || (h->lost_before & bits) == bits;
}

/* Neither from an ACK, nor from flags that no handshake has. */
static __always_inline __u8 opening_of(__u8 tcp_flags)
{
	switch (tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) {
	case TCP_SYN:
		return OPENING_SYN;
	case TCP_SYN | TCP_ACK:
		return OPENING_SYN_ACK;
	}
	return 0;
}

/* The packet has SYN, or may be the ACK that is expected. */
__noinline int handshake_step(frame_ctx *ctx, struct packet *p)
{
	__u32 index, seq, ack_seq;
	struct handshake *h;
	struct tcphdr tcp;
	__u64 hash, now;

	if (!p)
		return 0;
	p->opening = opening_of(p->id.tcp_flags);
	p->rare |= p->opening;
	if (frame_load(ctx, p->l4_offset, &tcp, sizeof(tcp)))
		return 0;
	seq = bpf_ntohl(tcp.seq);
	ack_seq = bpf_ntohl(tcp.ack_seq);
	hash = handshake_hash(&p->id);
	index = hash >> 48;
	h = bpf_map_lookup_elem(&handshakes, &index);
	if (!h)
		return 0;
	now = bpf_ktime_get_ns();

	switch (p->id.tcp_flags & (TCP_SYN | TCP_ACK)) {
	case TCP_SYN:
		if (h->hash == hash && h->syn_seq == seq) {
			h->syn = 0;
			return 0;
		}
		if (was_lost(h, hash, seq, now)) {
			count(ctx, p->id.meta & 1, REASON_HANDSHAKE_LOST);
			return 0;
		}
		if (h->hash && h->hash != hash && h->syn && now - h->syn < HANDSHAKE_LIFETIME)
			count(ctx, p->id.meta & 1, REASON_HANDSHAKE_LOST);
		if (h->hash)
			h->lost |= fingerprint(h->hash, h->syn_seq);
		h->hash = hash;
		h->initiator = p->hash_high;
		h->syn = now;
		h->syn_ack = 0;
		h->syn_seq = seq;
		h->syn_ack_seq = 0;
		return 0;
	case TCP_SYN | TCP_ACK:
		if (h->hash != hash || ack_seq != h->syn_seq + 1)
			return 0;
		if (h->syn_ack_seq == seq) {
			h->syn_ack = 0;
			return 0;
		}
		h->syn_ack = now;
		h->syn_ack_seq = seq;
		if (h->syn)
			p->rtt_responder = elapsed(h->syn, now);
		expected_acks[ack_slot(h->initiator)] = ack_tag(h->initiator);
		break;
	case TCP_ACK:
		if (h->hash != hash) { /* another handshake took its place */
			expected_acks[ack_slot(p->hash_high)] = 0;
			return 0;
		}
		if (seq != h->syn_seq + 1 || ack_seq != h->syn_ack_seq + 1)
			return 0;
		if (h->syn_ack)
			p->rtt_initiator = elapsed(h->syn_ack, now);
		if (h->syn && h->syn_ack)
			p->rtt_responder = elapsed(h->syn, h->syn_ack);
		h->hash = 0;
		expected_acks[ack_slot(p->hash_high)] = 0;
		break;
	}
	p->rare |= p->rtt_responder | p->rtt_initiator;
	return 0;
}

/* Whether the ACK that ends a handshake is still to come, and may be this packet. */
static __always_inline bool is_expected(const struct packet *p)
{
	return expected_acks[ack_slot(p->hash_high)] == ack_tag(p->hash_high);
}

/* Only what has a TCP header has flags. */
static __always_inline void handshake(frame_ctx *ctx, struct flow_batch *batch, struct packet *p)
{
	__u32 flags = p->id.tcp_flags & (TCP_SYN | TCP_ACK);

	if (!flags) {
		first_packet(batch, p);
		return;
	}
	if (flags == TCP_ACK && !is_expected(p))
		return;
	handshake_step(ctx, p);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Round trip of TCP handshakes: SYN to SYN-ACK is the way to the responder and
 * back, SYN-ACK to ACK the way to the initiator and back. Where the interface
 * is an end of the connection, one of the two is the whole path.
 *
 * In: packets with SYN, and the ACK that answers a SYN-ACK. Out: the two times
 * in the packet. A retransmitted SYN or SYN-ACK gives none (Karn).
 */
#ifndef WAYMARK_HANDSHAKE_H
#define WAYMARK_HANDSHAKE_H

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* A slot in use by a younger handshake than this counts as lost when taken. */
#define HANDSHAKE_LIFETIME 3000000000ULL

/*
 * Direct mapped by the hash of both ends; shared by all processors, since the
 * two directions arrive on different ones. Written and read by the programs.
 * When two handshakes meet, the later has the slot.
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
 * One element.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handshake_acks);
} handshake_acks SEC(".maps");

static __always_inline __u64 end_hash(const void *address, __be16 port)
{
	const __u64 *words = address;

	return mix(nh_word(words[0], 0) + nh_word(words[1], 2) + nh(port, 0, 4));
}

/* The same for both directions. */
static __always_inline __u64 handshake_hash(const struct flow_slot *id)
{
	return mix(end_hash(id->saddr, id->sport) + end_hash(id->daddr, id->dport) +
		   nh(id->iface, id->meta >> META_VLAN_SHIFT, 6));
}

static __always_inline __u8 ack_tag(__u64 flow_hash)
{
	return flow_hash >> 40 | 1;
}

static __always_inline __u32 elapsed(__u64 from, __u64 to)
{
	return to - from < 0xffffffff ? to - from : 0xffffffff;
}

/* The packet has SYN, or may be the ACK that is expected. */
__noinline int handshake_step(struct __sk_buff *skb, struct packet *p)
{
	__u32 index, zero = 0, seq, ack_seq;
	struct handshake_acks *acks;
	struct handshake *h;
	struct tcphdr tcp;
	__u64 hash, now;

	if (!p || bpf_skb_load_bytes(skb, p->l4_offset, &tcp, sizeof(tcp)))
		return 0;
	seq = bpf_ntohl(tcp.seq);
	ack_seq = bpf_ntohl(tcp.ack_seq);
	hash = handshake_hash(&p->id);
	index = hash >> 48;
	h = bpf_map_lookup_elem(&handshakes, &index);
	acks = bpf_map_lookup_elem(&handshake_acks, &zero);
	if (!h || !acks)
		return 0;
	now = bpf_ktime_get_ns();

	switch (p->id.tcp_flags & (TCP_SYN | TCP_ACK)) {
	case TCP_SYN:
		if (h->hash == hash && h->syn_seq == seq) {
			h->syn = 0;
			return 0;
		}
		if (h->hash && h->hash != hash && h->syn && now - h->syn < HANDSHAKE_LIFETIME)
			count(skb, p->id.meta & 1, REASON_HANDSHAKE_LOST);
		h->hash = hash;
		h->initiator = p->hash;
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
		acks->expected[h->initiator >> 48] = ack_tag(h->initiator);
		break;
	case TCP_ACK:
		if (h->hash != hash) { /* another handshake took its place */
			acks->expected[p->hash >> 48] = 0;
			return 0;
		}
		if (seq != h->syn_seq + 1 || ack_seq != h->syn_ack_seq + 1)
			return 0;
		if (h->syn_ack)
			p->rtt_initiator = elapsed(h->syn_ack, now);
		if (h->syn && h->syn_ack)
			p->rtt_responder = elapsed(h->syn, h->syn_ack);
		h->hash = 0;
		acks->expected[p->hash >> 48] = 0;
		break;
	}
	p->rare |= p->rtt_responder | p->rtt_initiator;
	return 0;
}

/* Only what has a TCP header has flags. */
static __always_inline void handshake(struct __sk_buff *skb, struct packet *p)
{
	__u32 flags = p->id.tcp_flags & (TCP_SYN | TCP_ACK), zero = 0;
	struct handshake_acks *acks;

	if (!flags)
		return;
	if (flags == TCP_ACK) {
		acks = bpf_map_lookup_elem(&handshake_acks, &zero);
		if (!acks || acks->expected[p->hash >> 48] != ack_tag(p->hash))
			return;
	}
	handshake_step(skb, p);
}

#endif

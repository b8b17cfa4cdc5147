/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Round trip of TCP handshakes: SYN to SYN-ACK is the way to the responder and
 * back, SYN-ACK to ACK the way to the initiator and back. Where the interface
 * is an end of the connection, one of the two is the whole path.
 *
 * In: packets with SYN, and the first ACK of a flow in an epoch. Out: the two
 * times in flow_extra. A retransmitted SYN or SYN-ACK gives none (Karn).
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
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct handshake);
} handshakes SEC(".maps");

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

/*
 * Not 0 for a packet with SYN, and for the first one with ACK. old_flags is what
 * the flow's slot had seen before. Only what has a TCP header has flags.
 */
static __always_inline __u32 handshake_flags(const struct packet *p, __u8 old_flags)
{
	return p->id.tcp_flags & (TCP_SYN | (TCP_ACK & ~old_flags));
}

static __always_inline __u32 elapsed(__u64 from, __u64 to)
{
	return to - from < 0xffffffff ? to - from : 0xffffffff;
}

__noinline int handshake_step(struct __sk_buff *skb, const struct flow_slot *id, __u32 l4_offset,
			      struct flow_extra *extra)
{
	__u32 index, seq, ack_seq;
	struct handshake *h;
	struct tcphdr tcp;
	__u64 hash, now;

	if (!id || !extra || bpf_skb_load_bytes(skb, l4_offset, &tcp, sizeof(tcp)))
		return 0;
	seq = bpf_ntohl(tcp.seq);
	ack_seq = bpf_ntohl(tcp.ack_seq);
	hash = handshake_hash(id);
	index = hash >> 48;
	h = bpf_map_lookup_elem(&handshakes, &index);
	if (!h)
		return 0;
	now = bpf_ktime_get_ns();

	switch (id->tcp_flags & (TCP_SYN | TCP_ACK)) {
	case TCP_SYN:
		if (h->hash == hash && h->syn_seq == seq) {
			h->syn = 0;
			return 0;
		}
		if (h->hash && h->hash != hash && h->syn && now - h->syn < HANDSHAKE_LIFETIME)
			count(skb, id->meta & 1, REASON_HANDSHAKE_LOST);
		h->hash = hash;
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
			extra->rtt_responder = elapsed(h->syn, now);
		return 0;
	case TCP_ACK:
		if (h->hash != hash || !h->syn_ack || seq != h->syn_seq + 1 ||
		    ack_seq != h->syn_ack_seq + 1)
			return 0;
		extra->rtt_initiator = elapsed(h->syn_ack, now);
		if (h->syn)
			extra->rtt_responder = elapsed(h->syn, h->syn_ack);
		h->hash = 0;
		return 0;
	}
	return 0;
}

#endif

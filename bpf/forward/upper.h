/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * VLAN interfaces and bridges, which run no programs: ports send and receive in their place.
 *
 * Input: a frame at a port; or what a route says. Output: the interface that routes it; or the port by which it leaves, and its
 * tag there. What the agent has not resolved is the kernel's. Called by forward.h.
 */
#ifndef WAYMARK_FORWARD_UPPER_H
#define WAYMARK_FORWARD_UPPER_H

#define FORWARD_VID 0xfff /* of a tag */

/* Link header with a tag. */
#define FORWARD_TAGGED (sizeof(struct ethhdr) + sizeof(struct vlan_header))

static __always_inline struct forward_way *forward_way_of(const struct forward_key *key)
{
	return bpf_map_lookup_elem(&forward_ways, key);
}

/* Where a bridge knows a station; NULL: nowhere, or where the agent cannot follow. */
static __always_inline struct forward_way *forward_station(__u32 bridge, __u16 vid, const __u8 *mac)
{
	struct forward_key key = { .iface = bridge, .tag.vid = vid, .kind = FORWARD_STATION };

	__builtin_memcpy(key.mac, mac, sizeof(key.mac));
	return forward_way_of(&key);
}

/*
 * The interface that a frame is for, by its tag and its port. A bridge learns who is where from frames that the kernel gets, so
 * it gets those of stations that it does not know to be there. Verified alone.
 */
__feature(FEATURE_FORWARD) __noinline int forward_arrives(frame_ctx *xdp, struct forward_view *v)
{
	struct forward_key key = { .kind = FORWARD_ARRIVAL };
	const volatile struct forward_way *way;
	struct frame f = frame_of(xdp);
	const struct ethhdr *eth = f.data;
	const struct vlan_header *tag = (const void *)(eth + 1);
	struct forward_way *sender;

	if (!v || (const void *)tag > f.end)
		return FORWARD_NOT_IP;
	if (port_is_tag(eth->h_proto)) {
		if ((const void *)(tag + 1) > f.end)
			return FORWARD_NOT_IP;
		if (v->in.vid || port_is_tag(tag->proto)) /* two tags */
			return FORWARD_VLAN;
		v->in.proto = eth->h_proto;
		v->in.vid = bpf_ntohs(tag->tci) & FORWARD_VID;
		v->link = FORWARD_TAGGED;
		if (!v->in.vid) /* only a priority */
			return FORWARD_VLAN;
	}
	way = &forward_memory.untagged[v->place & (FORWARD_PORTS - 1)];
	if (v->in.vid) {
		key.iface = iface_of(xdp);
		key.tag = v->in;
		way = forward_way_of(&key);
		if (!way)
			return FORWARD_VLAN;
	}
	if (!v->in.vid && !(v->flags & FORWARD_UPPER)) /* it is the port itself that routes */
		return port_is_mac(forward_memory.ports[v->place & (FORWARD_PORTS - 1)].mac,
				   eth->h_dest)
			       ? FORWARD_DONE
			       : FORWARD_OTHER_MAC;
	if (!way->device)
		return FORWARD_UNRESOLVED;
	if (!port_is_mac(way->mac, eth->h_dest))
		return FORWARD_OTHER_MAC;
	if (way->member) {
		sender = forward_station(way->bridge, way->vid, eth->h_source);
		if (!sender || sender->member != way->member)
			return FORWARD_UNLEARNED;
	}
	v->device = way->device;
	v->scope = way->scope;
	v->flags = (v->flags & ~FORWARD_STRICT) | way->flags;
	return FORWARD_DONE;
}

/* The port and the tag by which a packet leaves that is routed to no port. Verified alone. */
__feature(FEATURE_FORWARD) __noinline int forward_departs(struct forward_view *v)
{
	struct forward_key key = { .kind = FORWARD_ROUTE };
	struct forward_way *way;
	__u32 bridge;
	__u16 vid;

	if (!v)
		return FORWARD_NO_PORT;
	key.iface = v->out;
	way = forward_way_of(&key);
	if (!way)
		return FORWARD_NO_PORT;
	v->leaves = way->tag;
	bridge = way->bridge;
	vid = way->vid;
	if (bridge) {
		way = forward_station(bridge, vid, v->fib.dmac);
		if (!way)
			return FORWARD_NO_STATION;
		if (way->tag.vid && v->leaves.vid)
			return FORWARD_NO_PORT; /* two tags */
		if (way->tag.vid)
			v->leaves = way->tag;
	}
	v->out = way->port;
	if (v->total <= way->room)
		return FORWARD_DONE;
	v->fib.mtu_result = way->room; /* for dry runs */
	return FORWARD_TOO_BIG;
}

/* Has a frame be as it leaves, but for its IP header: a tag comes, goes or changes. Not 0: it cannot be written. Verified alone. */
__feature(FEATURE_FORWARD) __noinline int forward_retag(frame_ctx *xdp, struct forward_view *v)
{
	struct vlan_header *tag;
	struct ethhdr *eth;
	struct frame f;
	int more;

	if (!v)
		return -1;
	more = (v->leaves.vid ? sizeof(*tag) : 0) - (v->link > sizeof(*eth) ? sizeof(*tag) : 0);
	if (more && bpf_xdp_adjust_head(xdp, -more))
		return -1;
	if (!v->leaves.vid)
		return 0;
	f = frame_of(xdp);
	eth = f.data;
	tag = (void *)(eth + 1); /* the type of what is inside is where it was */
	if ((void *)(tag + 1) > f.end)
		return -1;
	eth->h_proto = v->leaves.proto;
	tag->tci = bpf_htons(v->leaves.vid);
	return 0;
}

#endif

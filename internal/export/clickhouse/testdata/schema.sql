CREATE DATABASE IF NOT EXISTS waymark;

CREATE TABLE IF NOT EXISTS waymark.flows
(
    time DateTime64(9, 'UTC') COMMENT 'begin of the interval that counted the packets' CODEC(DoubleDelta, ZSTD(1)),
    interval UInt64 COMMENT 'number of that interval, of this host' CODEC(DoubleDelta, ZSTD(1)),
    row UInt32 COMMENT 'place of the record in it' CODEC(DoubleDelta, ZSTD(1)),
    repeated UInt64 COMMENT 'packets, among packets, that another record of the host counted too, of the interface they came from' CODEC(T64, ZSTD(1)),
    ifindex UInt32 COMMENT 'number of the interface' CODEC(T64, ZSTD(1)),
    host LowCardinality(String) COMMENT 'name of the host the agent runs on' CODEC(ZSTD(1)),
    iface LowCardinality(String) COMMENT 'interface the packets were counted on' CODEC(ZSTD(1)),
    netns LowCardinality(String) COMMENT 'network namespace of the interface; absent: the agent\'s own' CODEC(ZSTD(1)),
    direction Enum8('ingress' = 0, 'egress' = 1) COMMENT 'way of the packets at the interface' CODEC(ZSTD(1)),
    family UInt8 COMMENT 'IP version, 4 or 6' CODEC(T64, ZSTD(1)),
    proto UInt8 COMMENT 'IANA protocol number, after IPv6 extension headers' CODEC(T64, ZSTD(1)),
    src Nullable(IPv6) COMMENT 'source address; absent when unattributed' CODEC(ZSTD(1)),
    sport Nullable(UInt16) COMMENT 'source port; of ICMP echo the identifier; absent when unattributed' CODEC(T64, ZSTD(1)),
    dst Nullable(IPv6) COMMENT 'destination address; absent when unattributed' CODEC(ZSTD(1)),
    dport Nullable(UInt16) COMMENT 'destination port; of ICMP type × 256 + code; absent when unattributed' CODEC(T64, ZSTD(1)),
    vlan UInt16 COMMENT 'id of the (outer) VLAN tag; 0: untagged' CODEC(T64, ZSTD(1)),
    tos UInt8 COMMENT 'DSCP × 4 + ECN of the first packet (IPv6: traffic class)' CODEC(T64, ZSTD(1)),
    tcp_flags UInt16 COMMENT 'TCP control bits of all packets or\'ed, as on the wire (RFC 9293)' CODEC(T64, ZSTD(1)),
    packets UInt64 COMMENT 'packets on the wire: segments, not offload bursts' CODEC(T64, ZSTD(1)),
    bytes UInt64 COMMENT 'IP bytes, headers included' CODEC(T64, ZSTD(1)),
    wire_bytes UInt64 COMMENT 'IP bytes, link header, padding and tunnel headers' CODEC(T64, ZSTD(1)),
    first DateTime64(9, 'UTC') COMMENT 'time of the first packet counted' CODEC(DoubleDelta, ZSTD(1)),
    last DateTime64(9, 'UTC') COMMENT 'time of the last packet counted' CODEC(DoubleDelta, ZSTD(1)),
    end_reason Enum8('none' = 0, 'idle_timeout' = 1, 'active_timeout' = 2, 'end_of_flow' = 3, 'forced_end' = 4, 'lack_of_resources' = 5) COMMENT 'why the record was exported; none: the flow goes on' CODEC(ZSTD(1)),
    unattributed Bool COMMENT 'true: packets that were counted but whose flow could not be kept' CODEC(ZSTD(1)),
    payload_bytes UInt64 COMMENT 'bytes above the transport header; absent: none' CODEC(T64, ZSTD(1)),
    fragments UInt64 COMMENT 'packets that are IP fragments; absent: none' CODEC(T64, ZSTD(1)),
    ce_packets UInt64 COMMENT 'packets marked congestion experienced (RFC 3168); absent: none' CODEC(T64, ZSTD(1)),
    forwarded UInt64 COMMENT 'packets, among `packets`, that were forwarded at XDP, past the kernel\'s stack; absent: none' CODEC(T64, ZSTD(1)),
    other_iface LowCardinality(String) COMMENT 'interface on the other side of `forwarded` packets: where those of an ingress record left, those of an egress record came from; of records of a device without an agent, where they left, or came from. Absent: none were forwarded at XDP' CODEC(ZSTD(1)),
    ttl_min UInt8 COMMENT 'smallest TTL or hop limit; absent: 0' CODEC(T64, ZSTD(1)),
    ttl_max UInt8 COMMENT 'largest TTL or hop limit; absent: 0' CODEC(T64, ZSTD(1)),
    flow_label UInt32 COMMENT 'IPv6 flow label of the first packet; absent: 0' CODEC(T64, ZSTD(1)),
    inner_vlan UInt16 COMMENT 'id of the inner VLAN tag; absent: none' CODEC(T64, ZSTD(1)),
    tunnel Enum8('none' = 0, 'vxlan' = 1, 'geneve' = 2, 'gre' = 3, 'ipip' = 4) COMMENT 'encapsulation that was taken off to reach the flow; absent: none' CODEC(ZSTD(1)),
    vni UInt32 COMMENT 'VXLAN or Geneve network, or GRE key; absent: 0' CODEC(T64, ZSTD(1)),
    icmp_type Nullable(UInt8) COMMENT 'ICMP or ICMPv6 type; absent for other protocols' CODEC(T64, ZSTD(1)),
    icmp_code Nullable(UInt8) COMMENT 'ICMP or ICMPv6 code; absent for other protocols' CODEC(T64, ZSTD(1)),
    sampling UInt32 COMMENT 'one packet in so many was counted; absent: every one' CODEC(T64, ZSTD(1)),
    initiator Enum8('unknown' = 0, 'src' = 1, 'dst' = 2) COMMENT 'end of the flow that began the conversation: src or dst; absent: not known' CODEC(ZSTD(1)),
    initiator_by Enum8('none' = 0, 'ports' = 1, 'first' = 2, 'request' = 3, 'handshake' = 4) COMMENT 'how the initiator is known: handshake of TCP, request of ICMP echo, first: its packet was seen before any of the other end; ports: a guess, nothing else is known' CODEC(ZSTD(1)),
    rtt_responder_ns Nullable(UInt64) COMMENT 'TCP handshake: SYN to SYN-ACK; absent: not seen' CODEC(T64, ZSTD(1)),
    rtt_initiator_ns Nullable(UInt64) COMMENT 'TCP handshake: SYN-ACK to ACK; absent: not seen' CODEC(T64, ZSTD(1)),
    rtt_handshake_ns Nullable(UInt64) COMMENT 'TCP handshake: SYN to ACK, the round trip between both ends; absent: not seen whole' CODEC(T64, ZSTD(1)),
    drops_packets UInt64 COMMENT 'packets, among `packets`, that rules of the gate dropped; absent: none' CODEC(T64, ZSTD(1)),
    drops_bytes UInt64 COMMENT 'IP bytes, among `bytes`, of packets that rules of the gate dropped; absent: none' CODEC(T64, ZSTD(1)),
    drops_verdict Nullable(Enum8('none' = 0, 'drop' = 1, 'limit' = 2, 'syncookie' = 3, 'ban' = 4, 'several' = 5)) COMMENT 'how the rule came to drop them: drop matches, limit is a rate that was exceeded, syncookie is no connection and no cookie, ban is a banned source; several: rules of several kinds' CODEC(ZSTD(1)),
    drops_rule Nullable(UInt32) COMMENT 'id of the rule, as `waymark rules list` shows it; absent: several rules did' CODEC(T64, ZSTD(1)),
    drops_by LowCardinality(String) COMMENT 'text of the rule; absent: several rules did' CODEC(ZSTD(1)),
    pdm_sent Nullable(UInt64) COMMENT 'packets marked here, a GSO burst as one' CODEC(T64, ZSTD(1)),
    pdm_received Nullable(UInt64) COMMENT 'packets of the peer whose marks were read and believed, a GSO burst as one' CODEC(T64, ZSTD(1)),
    pdm_lost Nullable(Int64) COMMENT 'packets of the peer that did not come; one that comes after its loss was reported offsets the next loss; absent: none' CODEC(T64, ZSTD(1)),
    pdm_reordered Nullable(UInt64) COMMENT 'packets of the peer that came behind later ones; absent: none' CODEC(T64, ZSTD(1)),
    pdm_duplicates Nullable(UInt64) COMMENT 'packets of the peer that arrived more than once; absent: none' CODEC(T64, ZSTD(1)),
    pdm_suspicious Nullable(UInt64) COMMENT 'packets with impossible times, or with numbers that are not believed: kept out of the delays; absent: none' CODEC(T64, ZSTD(1)),
    pdm_discarded Nullable(UInt64) COMMENT 'packets in order that do not answer the packet sent last; absent: none' CODEC(T64, ZSTD(1)),
    pdm_server_count Nullable(UInt64) COMMENT 'number of server delays: at the peer, from a request\'s arrival to its answer; absent: none' CODEC(T64, ZSTD(1)),
    pdm_server_sum_ns Nullable(UInt64) COMMENT 'sum of the server delays' CODEC(T64, ZSTD(1)),
    pdm_server_min_ns Nullable(UInt64) COMMENT 'shortest server delay' CODEC(T64, ZSTD(1)),
    pdm_server_max_ns Nullable(UInt64) COMMENT 'longest server delay' CODEC(T64, ZSTD(1)),
    pdm_server_p50_ns Nullable(UInt64) COMMENT 'median of the server delays, within 6 %' CODEC(T64, ZSTD(1)),
    pdm_server_p90_ns Nullable(UInt64) COMMENT 'what 90 of 100 server delays do not exceed, within 6 %' CODEC(T64, ZSTD(1)),
    pdm_server_p99_ns Nullable(UInt64) COMMENT 'what 99 of 100 server delays do not exceed, within 6 %' CODEC(T64, ZSTD(1)),
    pdm_server_buckets Array(UInt64) COMMENT 'histogram of the server delays as [index, count], without empty buckets: bucket 0 is below 2^10 ns, then there are 8 of equal width to each power of two; index and count of each by turns' CODEC(ZSTD(1)),
    pdm_network_count Nullable(UInt64) COMMENT 'number of network delays: a round trip without the time at the peer; absent: none' CODEC(T64, ZSTD(1)),
    pdm_network_sum_ns Nullable(UInt64) COMMENT 'sum of the network delays' CODEC(T64, ZSTD(1)),
    pdm_network_min_ns Nullable(UInt64) COMMENT 'shortest network delay' CODEC(T64, ZSTD(1)),
    pdm_network_max_ns Nullable(UInt64) COMMENT 'longest network delay' CODEC(T64, ZSTD(1)),
    pdm_network_p50_ns Nullable(UInt64) COMMENT 'median of the network delays, within 6 %' CODEC(T64, ZSTD(1)),
    pdm_network_p90_ns Nullable(UInt64) COMMENT 'what 90 of 100 network delays do not exceed, within 6 %' CODEC(T64, ZSTD(1)),
    pdm_network_p99_ns Nullable(UInt64) COMMENT 'what 99 of 100 network delays do not exceed, within 6 %' CODEC(T64, ZSTD(1)),
    pdm_network_buckets Array(UInt64) COMMENT 'histogram of the network delays as [index, count], without empty buckets: bucket 0 is below 2^10 ns, then there are 8 of equal width to each power of two; index and count of each by turns' CODEC(ZSTD(1)),
    ioam_path LowCardinality(String) COMMENT 'path that the traces of the latest packets show, as `waymark paths` names it; absent: no trace' CODEC(ZSTD(1)),
    ioam_nodes LowCardinality(String) COMMENT 'ids of its nodes, from the encapsulating one on; absent: no trace' CODEC(ZSTD(1)),
    ioam_namespace Nullable(UInt16) COMMENT 'IOAM namespace of the traces; absent: no trace' CODEC(T64, ZSTD(1)),
    ioam_hops Nullable(UInt8) COMMENT 'number of its nodes; absent: no trace' CODEC(T64, ZSTD(1)),
    ioam_packets Nullable(UInt64) COMMENT 'packets with a trace; absent: none' CODEC(T64, ZSTD(1)),
    ioam_changes Nullable(UInt64) COMMENT 'changes of the path; absent: none' CODEC(T64, ZSTD(1)),
    ioam_received Nullable(UInt64) COMMENT 'packets with an edge-to-edge sequence number that is believed, a GSO burst as one; absent: none' CODEC(T64, ZSTD(1)),
    ioam_lost Nullable(Int64) COMMENT 'packets that these numbers say did not come; flows between the same hosts share numbers, and the flow whose packet showed the loss has it; absent: none' CODEC(T64, ZSTD(1)),
    ioam_reordered Nullable(UInt64) COMMENT 'packets that came behind later ones; absent: none' CODEC(T64, ZSTD(1)),
    ioam_duplicates Nullable(UInt64) COMMENT 'packets that arrived more than once; absent: none' CODEC(T64, ZSTD(1)),
    ioam_delay_count Nullable(UInt64) COMMENT 'number of path delays: from the first node to the last; absent: none' CODEC(T64, ZSTD(1)),
    ioam_delay_sum_ns Nullable(UInt64) COMMENT 'sum of the path delays' CODEC(T64, ZSTD(1)),
    ioam_delay_min_ns Nullable(UInt64) COMMENT 'shortest path delay' CODEC(T64, ZSTD(1)),
    ioam_delay_max_ns Nullable(UInt64) COMMENT 'longest path delay' CODEC(T64, ZSTD(1)),
    ioam_delay_mean_ns Nullable(UInt64) COMMENT 'mean of the path delays' CODEC(T64, ZSTD(1)),
    ioam_relative Nullable(Bool) COMMENT 'true: the clocks of the first node and the last do not agree, so there is no path delay' CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (toStartOfMinute(time), host, iface)
TTL toDateTime(time) + INTERVAL 720 HOUR
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS waymark.flows_intervals
(
    time DateTime64(9, 'UTC') COMMENT 'begin of the interval' CODEC(DoubleDelta, ZSTD(1)),
    until DateTime64(9, 'UTC') COMMENT 'its end' CODEC(DoubleDelta, ZSTD(1)),
    host LowCardinality(String),
    sequence UInt64 COMMENT 'its number' CODEC(DoubleDelta, ZSTD(1)),
    rows UInt64 COMMENT 'its records' CODEC(T64, ZSTD(1)),
    summed UInt64 COMMENT 'records that were too many to keep' CODEC(T64, ZSTD(1)),
    wiring String COMMENT 'how interfaces hung together, in the encoding of the history, as base64' CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (host, sequence)
TTL toDateTime(time) + INTERVAL 7200 HOUR
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS waymark.flows_1m
(
    time DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    host LowCardinality(String),
    iface LowCardinality(String),
    netns LowCardinality(String),
    direction Enum8('ingress' = 0, 'egress' = 1),
    family UInt8,
    proto UInt8,
    vlan UInt16,
    tos UInt8,
    inner_vlan UInt16,
    tunnel Enum8('none' = 0, 'vxlan' = 1, 'geneve' = 2, 'gre' = 3, 'ipip' = 4),
    vni UInt32,
    records SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    packets SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    bytes SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    wire_bytes SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    payload_bytes SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    fragments SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ce_packets SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    forwarded SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    drops_packets SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    drops_bytes SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (time, host, iface, netns, direction, family, proto, vlan, tos, inner_vlan, tunnel, vni)
TTL toDateTime(time) + INTERVAL 7200 HOUR
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS waymark.flows_1m_view TO waymark.flows_1m AS
SELECT
    toStartOfMinute(flows.time) AS time,
    host,
    iface,
    netns,
    direction,
    family,
    proto,
    vlan,
    tos,
    inner_vlan,
    tunnel,
    vni,
    count() AS records,
    sum(flows.packets) AS packets,
    sum(flows.bytes) AS bytes,
    sum(flows.wire_bytes) AS wire_bytes,
    sum(flows.payload_bytes) AS payload_bytes,
    sum(flows.fragments) AS fragments,
    sum(flows.ce_packets) AS ce_packets,
    sum(flows.forwarded) AS forwarded,
    sum(flows.drops_packets) AS drops_packets,
    sum(flows.drops_bytes) AS drops_bytes
FROM waymark.flows
GROUP BY time, host, iface, netns, direction, family, proto, vlan, tos, inner_vlan, tunnel, vni;

CREATE TABLE IF NOT EXISTS waymark.flows_1h
(
    time DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    host LowCardinality(String),
    iface LowCardinality(String),
    netns LowCardinality(String),
    direction Enum8('ingress' = 0, 'egress' = 1),
    family UInt8,
    proto UInt8,
    vlan UInt16,
    tos UInt8,
    inner_vlan UInt16,
    tunnel Enum8('none' = 0, 'vxlan' = 1, 'geneve' = 2, 'gre' = 3, 'ipip' = 4),
    vni UInt32,
    records SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    packets SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    bytes SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    wire_bytes SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    payload_bytes SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    fragments SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ce_packets SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    forwarded SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    drops_packets SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    drops_bytes SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (time, host, iface, netns, direction, family, proto, vlan, tos, inner_vlan, tunnel, vni)
TTL toDateTime(time) + INTERVAL 7200 HOUR
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS waymark.flows_1h_view TO waymark.flows_1h AS
SELECT
    toStartOfHour(flows.time) AS time,
    host,
    iface,
    netns,
    direction,
    family,
    proto,
    vlan,
    tos,
    inner_vlan,
    tunnel,
    vni,
    count() AS records,
    sum(flows.packets) AS packets,
    sum(flows.bytes) AS bytes,
    sum(flows.wire_bytes) AS wire_bytes,
    sum(flows.payload_bytes) AS payload_bytes,
    sum(flows.fragments) AS fragments,
    sum(flows.ce_packets) AS ce_packets,
    sum(flows.forwarded) AS forwarded,
    sum(flows.drops_packets) AS drops_packets,
    sum(flows.drops_bytes) AS drops_bytes
FROM waymark.flows
GROUP BY time, host, iface, netns, direction, family, proto, vlan, tos, inner_vlan, tunnel, vni;


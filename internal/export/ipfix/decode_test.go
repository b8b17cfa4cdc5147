package ipfix

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// specifier is an element as a template names it.
type specifier struct {
	id  uint16 // without the enterprise bit
	len uint16
	pen uint32
}

// dataRecord is a decoded record: the values in the order of its template.
type dataRecord struct {
	template uint16
	scope    int
	elements []specifier
	values   [][]byte
}

// decoder reads messages of one transport session, strictly: what RFC 7011 does
// not allow is an error.
type decoder struct {
	templates map[uint16]decodedTemplate
	sequence  uint32 // expected in the next message
	lost      int    // records that gaps in the sequence tell of
	messages  int
	exported  time.Time
	domain    uint32
}

type decodedTemplate struct {
	scope    int
	elements []specifier
}

var errTruncated = errors.New("truncated")

// cursor reads big-endian numbers and remembers the first error.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) take(n int) []byte {
	if c.err == nil && n > len(c.b) {
		c.err = errTruncated
	}
	if c.err != nil {
		return make([]byte, min(n, 8))
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) u8() uint8   { return c.take(1)[0] }
func (c *cursor) u16() uint16 { return be.Uint16(c.take(2)) }
func (c *cursor) u32() uint32 { return be.Uint32(c.take(4)) }

// message decodes one message and returns its data records.
func (d *decoder) message(b []byte) ([]dataRecord, error) {
	c := &cursor{b: b}
	ver, length, exported, sequence, domain := c.u16(), c.u16(), c.u32(), c.u32(), c.u32()
	if c.err != nil || ver != 10 || int(length) != len(b) {
		return nil, fmt.Errorf("header: version %d, length %d of %d: %w", ver, length, len(b), errors.Join(c.err, errTruncated))
	}
	d.messages++
	d.lost += int(sequence - d.sequence)
	d.exported, d.domain = time.Unix(int64(exported), 0), domain
	if d.templates == nil {
		d.templates = map[uint16]decodedTemplate{}
	}

	var records []dataRecord
	for len(c.b) > 0 {
		id, n := c.u16(), c.u16()
		if c.err != nil || n <= 4 {
			return nil, fmt.Errorf("set %d of %d bytes: %w", id, n, errors.Join(c.err, errTruncated))
		}
		set := &cursor{b: c.take(int(n) - 4)}
		if c.err != nil {
			return nil, fmt.Errorf("set %d: %w", id, c.err)
		}
		for len(set.b) > 0 && set.err == nil {
			switch {
			case id == setTemplate || id == setOptionsTemplate:
				d.template(set, id == setOptionsTemplate)
			case id >= 256:
				t, known := d.templates[id]
				if !known {
					return nil, fmt.Errorf("data of unknown template %d", id)
				}
				records = append(records, t.record(set, id))
			default:
				return nil, fmt.Errorf("set id %d", id)
			}
		}
		if set.err != nil {
			return nil, fmt.Errorf("set %d: %w", id, set.err)
		}
	}
	d.sequence = sequence + uint32(len(records))
	return records, nil
}

func (d *decoder) template(c *cursor, options bool) {
	id, n := c.u16(), int(c.u16())
	t := decodedTemplate{}
	if options {
		t.scope = int(c.u16())
	}
	width := 0
	for range n {
		e := specifier{id: c.u16(), len: c.u16()}
		if e.id&(1<<15) != 0 {
			e.id &^= 1 << 15
			e.pen = c.u32()
		}
		if c.err != nil {
			return
		}
		width += int(e.len)
		t.elements = append(t.elements, e)
	}
	if c.err == nil && (id < 256 || width == 0 || t.scope > n || options && t.scope == 0) {
		c.err = fmt.Errorf("template %d of %d fields, %d scope, %d bytes", id, n, t.scope, width)
		return
	}
	d.templates[id] = t
}

func (t decodedTemplate) record(c *cursor, id uint16) dataRecord {
	r := dataRecord{template: id, scope: t.scope, elements: t.elements}
	for _, e := range t.elements {
		n := int(e.len)
		if e.len == 65535 {
			if n = int(c.u8()); n == 255 {
				n = int(c.u16())
			}
		}
		r.values = append(r.values, c.take(n))
	}
	return r
}

// stream splits bytes of a connection into messages.
func (d *decoder) stream(r io.Reader) ([]dataRecord, error) {
	var all []dataRecord
	for {
		header := make([]byte, 4)
		if _, err := io.ReadFull(r, header); err == io.EOF {
			return all, nil
		} else if err != nil {
			return all, err
		}
		rest := make([]byte, max(4, int(be.Uint16(header[2:])))-4)
		if _, err := io.ReadFull(r, rest); err != nil {
			return all, err
		}
		records, err := d.message(append(header, rest...))
		if err != nil {
			return all, err
		}
		all = append(all, records...)
	}
}

// named gives the values by element name; a reverse has the prefix "reverse ".
func (r *dataRecord) named(enterprise uint32) map[string][]byte {
	m := map[string][]byte{}
	for i, e := range r.elements {
		own, reverse := e.pen == enterprise, e.pen == reversePEN
		if own && e.id&reverseBit != 0 {
			reverse = true
			e.id &^= reverseBit
		}
		for _, known := range elements {
			if known.ID == e.id && known.Own == own && (e.pen == 0 || own || reverse) {
				name := known.Name
				if reverse {
					name = "reverse " + name
				}
				m[name] = r.values[i]
			}
		}
	}
	return m
}

// collected is what a collector makes of data records.
type collected struct {
	flows      []flow.Record
	directions []uint8 // biflowDirection of each pair in flows
	interfaces map[uint32]string
	vrfs       map[uint32]string
	options    map[uint16][]map[string][]byte
	host       string
}

// collect turns data records back into flow records; a conversation becomes two.
func collect(records []dataRecord, enterprise uint32) collected {
	reports := map[string]*flow.IOAM{} // of flows that follow
	c := collected{interfaces: map[uint32]string{}, vrfs: map[uint32]string{}, options: map[uint16][]map[string][]byte{}}
	for i := range records {
		r := &records[i]
		v := r.named(enterprise)
		switch {
		case r.template == idInterface:
			c.interfaces[uint32(number(v["ingressInterface"]))] = text(v["interfaceName"])
		case r.template == idVRF:
			c.vrfs[uint32(number(v["ingressVRFID"]))] = text(v["VRFname"])
		case r.template == idDomain:
			c.host = string(v["observationDomainName"])
		case r.scope > 0:
			c.options[r.template] = append(c.options[r.template], v)
		case r.template == idIOAM:
			reports[flowName(v, "", "source", "destination")] = ioamReport(v)
		default:
			forth := c.flow(v, "")
			forth.IOAM = reports[flowName(v, "", "source", "destination")]
			c.flows = append(c.flows, forth)
			if direction, both := v["biflowDirection"]; both {
				c.directions = append(c.directions, direction[0])
				back := c.flow(v, "reverse ")
				back.IOAM = reports[flowName(v, "reverse ", "destination", "source")]
				back.Src, back.Dst = forth.Dst, forth.Src
				back.SrcPort, back.DstPort = forth.DstPort, forth.SrcPort
				if forth.ICMP() {
					back.SrcPort, back.DstPort = forth.SrcPort, uint16(number(v["reverse icmpTypeCodeIPv4"])|number(v["reverse icmpTypeCodeIPv6"]))
				}
				back.Direction ^= 1
				back.Initiator = forth.Initiator.Opposite()
				c.flows = append(c.flows, back)
			}
		}
	}
	return c
}

// flowName is what tells a flow from others in a test: addresses, and exact times.
func flowName(v map[string][]byte, half, src, dst string) string {
	return fmt.Sprintf("%x %x %x %x", v[src+"IPv6Address"], v[dst+"IPv6Address"], v[half+"flowStartNanoseconds"], v[half+"flowEndNanoseconds"])
}

func ioamReport(v map[string][]byte) *flow.IOAM {
	n := func(name string) uint64 { return number(v["waymarkIOAM"+name]) }
	count := func(name string) uint64 { return n(name + "DeltaCount") }
	id, _ := strconv.ParseUint(text(v["waymarkIOAMPathId"]), 16, 64) // empty: no path
	return &flow.IOAM{
		IOAMPath: flow.IOAMPath{ID: flow.IOAMPathID(id), Namespace: uint16(n("Namespace")), Hops: uint8(n("HopCount")), Nodes: string(v["waymarkIOAMNodes"])},
		Packets:  count("Packet"), Changes: count("PathChange"), Received: count("Received"), Lost: int64(count("Lost")),
		Reordered: count("Reordered"), Duplicates: count("Duplicate"), Relative: n("Relative") == 1,
		Delay: flow.Delays{Count: count("PathDelay"), Sum: n("PathDelaySumNanoseconds"), Min: n("PathDelayMinNanoseconds"), Max: n("PathDelayMaxNanoseconds")},
	}
}

func (c *collected) flow(v map[string][]byte, half string) flow.Record {
	n := func(name string) uint64 { return number(v[name]) }
	h := func(name string) uint64 { return number(v[half+name]) }
	id, other, vrf := uint32(n("ingressInterface")), uint32(n("egressInterface")), uint32(n("ingressVRFID"))
	if flow.Direction(n("flowDirection")) == flow.Egress {
		id, other, vrf = other, id, uint32(n("egressVRFID"))
	}
	r := flow.Record{
		Iface: c.interfaces[id], Netns: c.vrfs[vrf], IfIndex: id - vrf<<22, Direction: flow.Direction(n("flowDirection")),
		Family: uint8(n("ipVersion")), Proto: uint8(n("protocolIdentifier")),
		SrcPort: uint16(n("sourceTransportPort") + n("waymarkICMPIdentifier")), DstPort: uint16(n("destinationTransportPort")),
		VLAN: uint16(n("vlanId")), InnerVLAN: uint16(n("dot1qCustomerVlanId")),
		Tunnel: flow.Tunnel(n("waymarkTunnelType")), VNI: uint32(n("waymarkTunnelKey")),
		TOS: uint8(h("ipClassOfService")), TCPFlags: uint16(h("tcpControlBits")), FlowLabel: uint32(h("flowLabelIPv6")),
		TTLMin: uint8(h("minimumTTL")), TTLMax: uint8(h("maximumTTL")),
		Counters: flow.Counters{Packets: h("packetDeltaCount"), Bytes: h("octetDeltaCount"), PayloadBytes: h("transportOctetDeltaCount"), WireBytes: h("layer2OctetDeltaCount"), Fragments: h("waymarkFragmentDeltaCount"), CEPackets: h("waymarkCEPacketDeltaCount"), Dropped: h("droppedPacketDeltaCount"), DroppedBytes: h("droppedOctetDeltaCount")},
		First:    fromNTP(h("flowStartNanoseconds")), Last: fromNTP(h("flowEndNanoseconds")),
		EndReason: flow.EndReason(h("flowEndReason")), Unattributed: n("waymarkUnattributed") == 1,
		Initiator: flow.Initiator(n("waymarkInitiator")), InitiatorBy: flow.Evidence(n("waymarkInitiatorEvidence")),
		RTT: flow.RTT{Responder: time.Duration(h("waymarkResponderRTTNanoseconds")), Initiator: time.Duration(h("waymarkInitiatorRTTNanoseconds"))},
	}
	if other != 0 {
		r.Other, r.OtherIfIndex = c.interfaces[other], other-vrf<<22
	}
	if r.Dropped > 0 {
		r.Drop = &flow.Drop{Verdict: flow.Verdict(n("waymarkDropVerdict")), Rule: uint32(n("waymarkDropRule"))}
	}
	if v["waymarkPDMSentDeltaCount"] != nil {
		r.PDM = &flow.PDM{
			Sent: n("waymarkPDMSentDeltaCount"), Received: n("waymarkPDMReceivedDeltaCount"), Lost: int64(n("waymarkPDMLostDeltaCount")),
			Reordered: n("waymarkPDMReorderedDeltaCount"), Duplicates: n("waymarkPDMDuplicateDeltaCount"),
			Suspicious: n("waymarkPDMSuspiciousDeltaCount"), Discarded: n("waymarkPDMDiscardedDeltaCount"),
			Server: c.delays(v, "Server"), Network: c.delays(v, "Network"),
		}
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		if src := v["source"+family+"Address"]; src != nil {
			r.Src, _ = netip.AddrFromSlice(src)
			r.Dst, _ = netip.AddrFromSlice(v["destination"+family+"Address"])
		}
	}
	return r
}

// delays has no buckets, but those of its quantiles: the median's once, and the
// 99th percentile's.
func (c *collected) delays(v map[string][]byte, name string) flow.Delays {
	n := func(end string) uint64 { return number(v["waymarkPDM"+name+"Delay"+end]) }
	return flow.Delays{
		Count: n("DeltaCount"), Sum: n("SumNanoseconds"), Min: n("MinNanoseconds"), Max: n("MaxNanoseconds"),
		Buckets: quantileBuckets(n("MedianNanoseconds"), n("P99Nanoseconds")),
	}
}

func quantileBuckets(median, p99 uint64) []flow.DelayBucket {
	return []flow.DelayBucket{{Index: 50, Count: median}, {Index: 99, Count: p99}}
}

func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

func number(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// fromNTP rounds down, in the era of NTP time that began in 1900.
func fromNTP(t uint64) time.Time {
	return time.Unix(int64(t>>32)-2208988800, int64(t&0xffffffff*1e9>>32)).UTC()
}

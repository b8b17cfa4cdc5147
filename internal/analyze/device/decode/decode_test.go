package decode

import (
	"maps"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/devicetest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// read hands datagrams to one session.
func read(t *testing.T, s *Session, datagrams ...devicetest.Buffer) (g *gathered, units uint32, known bool) {
	t.Helper()
	g = newGathered()
	for _, b := range datagrams {
		h, err := Peek(b)
		if err != nil {
			t.Fatal(err)
		}
		units, known = s.Decode(&h, devicetest.Exported, g)
	}
	return g, units, known
}

func (g *gathered) check(t *testing.T, flows int, packets, bytes uint64, counted map[Reason]uint64) {
	t.Helper()
	var sum flow.Counters
	for i := range g.flows {
		sum.Add(&g.flows[i].Counters)
	}
	if len(g.flows) != flows || sum.Packets != packets || sum.Bytes != bytes || !maps.Equal(g.counted, counted) {
		t.Errorf("%d flows of %d packets and %d bytes, want %d of %d and %d; counted %v, want %v", len(g.flows), sum.Packets, sum.Bytes, flows, packets, bytes, g.counted, counted)
	}
}

func TestNetFlow5(t *testing.T) {
	day := 24 * time.Hour
	g, units, known := read(t, NewSession(0), devicetest.NetFlow5(9, day, 1<<14|100, devicetest.Record5(2, 300, day-time.Minute, day-time.Second), devicetest.Record5(1, 40, day, day)))
	g.check(t, 2, 300, 34000, map[Reason]uint64{})
	d := g.flows[0]
	if units != 2 || !known || g.rate != 100 || g.ifaces[0] != [2]uint32{3, 4} || d.TCPFlags != 0x1b || d.TOS != 0x20 || d.SrcPort != 2000 || d.DstPort != 443 || d.Proto != 6 ||
		d.First != devicetest.Exported.Add(-time.Minute).UnixNano() || d.Last != devicetest.Exported.Add(-time.Second).UnixNano() {
		t.Errorf("%+v %v", d, g.ifaces)
	}
	// The counter of the uptime wraps between the flow and its export.
	g, _, _ = read(t, NewSession(0), devicetest.NetFlow5(9, 1000*time.Millisecond, 0, devicetest.Record5(2, 300, (1<<32-5000)*time.Millisecond, 500*time.Millisecond)))
	if d := g.flows[0]; d.First != devicetest.Exported.Add(-6*time.Second).UnixNano() || d.Last != devicetest.Exported.Add(-500*time.Millisecond).UnixNano() {
		t.Errorf("across the wrap of the uptime: %v %v", time.Unix(0, d.First), time.Unix(0, d.Last))
	}
}

// Records wait for their template, for a while and within bounds.
func TestTemplates(t *testing.T) {
	for name, of := range map[string]func(sets ...devicetest.Buffer) devicetest.Buffer{
		"ipfix": func(sets ...devicetest.Buffer) devicetest.Buffer { return devicetest.IPFIX(0, 0, sets...) },
		"netflow9": func(sets ...devicetest.Buffer) devicetest.Buffer {
			return devicetest.NetFlow9(0, 0, time.Hour, sets...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			setOfTemplates := uint16(2)
			if name == "netflow9" {
				setOfTemplates = 0
			}
			data := of(devicetest.Set(256, devicetest.Record(1, 5, 500).Bytes(devicetest.Record(2, 6, 600))))
			template := of(devicetest.Set(setOfTemplates, devicetest.Template(256)))

			s := NewSession(0)
			g, _, known := read(t, s, data)
			g.check(t, 0, 0, 0, map[Reason]uint64{})
			if s.Waiting() != 1 || known != (name == "netflow9") {
				t.Errorf("%d wait; known: %v", s.Waiting(), known)
			}
			g, _, _ = read(t, s, template)
			g.check(t, 2, 11, 1100, map[Reason]uint64{})

			s = NewSession(0)
			read(t, s, data)
			g = newGathered()
			s.Tend(devicetest.Exported.Add(waitTemplate), g)
			g.check(t, 0, 0, 0, map[Reason]uint64{})
			s.Tend(devicetest.Exported.Add(waitTemplate+1), g)
			g.check(t, 0, 0, 0, map[Reason]uint64{NoTemplate: 1})
			if s.Waiting() != 0 || s.bytes != 0 {
				t.Errorf("%d wait, of %d bytes", s.Waiting(), s.bytes)
			}

			// More than is kept: the oldest are lost.
			s = NewSession(0)
			long := of(devicetest.Set(300, make(devicetest.Buffer, 60_000)))
			g, _, _ = read(t, s, long, long, long)
			g.check(t, 0, 0, 0, map[Reason]uint64{NoTemplate: 1})
			if s.bytes > mostWaiting {
				t.Errorf("%d bytes wait", s.bytes)
			}
		})
	}
	// One that is replaced, and one that is withdrawn.
	s := NewSession(0)
	other := devicetest.Buffer{}.U16(256, 2, 2, 8, 1, 8)
	g, _, _ := read(t, s, devicetest.IPFIX(0, 0, devicetest.Set(2, devicetest.Template(256))), devicetest.IPFIX(0, 0, devicetest.Set(2, other)), devicetest.IPFIX(0, 0, devicetest.Set(256, devicetest.Buffer{}.U32(0, 7, 0, 70))))
	g.check(t, 1, 7, 70, map[Reason]uint64{})
	if !g.flows[0].Unattributed {
		t.Error("a flow without addresses is attributed")
	}
	read(t, s, devicetest.IPFIX(0, 0, devicetest.Set(2, devicetest.Buffer{}.U16(256, 0))))
	if len(s.templates) != 0 || s.fields != 0 {
		t.Errorf("%d templates with %d fields", len(s.templates), s.fields)
	}
}

// Templates that would never end, or take too much.
func TestHostileTemplates(t *testing.T) {
	for name, c := range map[string]struct {
		datagram devicetest.Buffer
		why      Reason
	}{
		"no bytes in a record":     {devicetest.IPFIX(0, 0, devicetest.Set(2, devicetest.Buffer{}.U16(256, 2, 1, 0, 2, 0))), Malformed},
		"no bytes, of NetFlow 9":   {devicetest.NetFlow9(0, 0, 0, devicetest.Set(0, devicetest.Buffer{}.U16(256, 2, 1, 0, 2, 0))), Malformed},
		"more fields than bytes":   {devicetest.IPFIX(0, 0, devicetest.Set(2, devicetest.Buffer{}.U16(256, 65535, 1, 4))), Malformed},
		"more scopes than fields":  {devicetest.IPFIX(0, 0, devicetest.Set(3, devicetest.Buffer{}.U16(256, 1, 2, 1, 4))), Malformed},
		"a set longer than all":    {devicetest.IPFIX(0, 0, devicetest.Buffer{}.U16(256, 100)), Malformed},
		"a set shorter than heads": {devicetest.IPFIX(0, 0, devicetest.Buffer{}.U16(256, 3)), Malformed},
		"too many fields":          {devicetest.IPFIX(0, 0, devicetest.Set(2, devicetest.Buffer{}.U16(256, mostInOne+1).Repeat(mostInOne+1, 1, 4))), Templates},
		"variable in NetFlow 9":    {devicetest.NetFlow9(0, 0, 0, devicetest.Set(0, devicetest.Buffer{}.U16(256, 1, 82, 65535))), Malformed},
	} {
		g, _, _ := read(t, NewSession(0), c.datagram)
		if !maps.Equal(g.counted, map[Reason]uint64{c.why: 1}) {
			t.Errorf("%s: counted %v, want %s", name, g.counted, c.why)
		}
	}
	// As many templates as there are numbers.
	s := NewSession(0)
	for id := 256; id < 1<<16; id += 100 {
		var b devicetest.Buffer
		for i := id; i < min(id+100, 1<<16); i++ {
			b = b.Bytes(devicetest.Template(uint16(i)))
		}
		read(t, s, devicetest.IPFIX(0, 0, devicetest.Set(2, b)))
	}
	if len(s.templates) > mostTemplates || s.fields > mostFields {
		t.Errorf("%d templates with %d fields", len(s.templates), s.fields)
	}
}

// Both halves of a conversation, by RFC 5103.
func TestBiflow(t *testing.T) {
	template := devicetest.Buffer{}.U16(256, 9, 8, 4, 12, 4, 7, 2, 11, 2, 4, 1, 2, 4, 1, 4).U16(2|enterpriseBit, 4).U32(reversePEN).U16(1|enterpriseBit, 4).U32(reversePEN)
	record := devicetest.Record(2000, 5, 500).U32(7, 700)
	g, units, _ := read(t, NewSession(0), devicetest.IPFIX(0, 0, devicetest.Set(2, template), devicetest.Set(256, record)))
	g.check(t, 2, 12, 1200, map[Reason]uint64{})
	a, b := g.flows[0], g.flows[1]
	if units != 1 || a.Src != b.Dst || a.SrcPort != b.DstPort || a.DstPort != b.SrcPort || a.Direction == b.Direction || b.Packets != 7 {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// Devices may have addresses of both versions in each record.
func TestBothVersions(t *testing.T) {
	template := devicetest.Buffer{}.U16(256, 6, 8, 4, 27, 16, 12, 4, 28, 16, 2, 4, 1, 4)
	four := devicetest.Buffer{}.U8(10, 0, 0, 1).Bytes(make([]byte, 16)).U8(10, 0, 0, 2).Bytes(make([]byte, 16)).U32(1, 100)
	six := devicetest.Buffer{}.U32(0).U32(0x20010db8, 0, 0, 1).U32(0).U32(0x20010db8, 0, 0, 2).U32(2, 200)
	g, _, _ := read(t, NewSession(0), devicetest.IPFIX(0, 0, devicetest.Set(2, template), devicetest.Set(256, four.Bytes(six))))
	g.check(t, 2, 3, 300, map[Reason]uint64{})
	if a, b := g.flows[0], g.flows[1]; a.IPv6 || a.Src[15] != 1 || a.Dst[15] != 2 || a.Src[10] != 0xff || !b.IPv6 || b.Src[0] != 0x20 || b.Dst[15] != 2 {
		t.Errorf("%+v\n%+v", a.Key, b.Key)
	}
}

// Rates of samplers, by their options; names of interfaces.
func TestOptions(t *testing.T) {
	template := devicetest.Buffer{}.U16(256, 8, 8, 4, 12, 4, 7, 2, 11, 2, 4, 1, 2, 4, 1, 4, 302, 4)
	record := func(selector uint32) devicetest.Buffer { return devicetest.Record(2000, 5, 500).U32(selector) }
	interval := devicetest.Buffer{}.U16(300, 3, 1, 302, 4, 305, 4, 306, 4)
	s := NewSession(0)
	read(t, s, devicetest.IPFIX(0, 0, devicetest.Set(2, template), devicetest.Set(3, interval)))
	g, units, _ := read(t, s, devicetest.IPFIX(0, 0, devicetest.Set(300, devicetest.Buffer{}.U32(1, 1, 99, 2, 10, 490))))
	if units != 2 || g.rate != 50 {
		t.Errorf("%d records, rate %v", units, g.rate)
	}
	g, _, _ = read(t, s, devicetest.IPFIX(0, 0, devicetest.Set(256, record(1))))
	g.check(t, 1, 500, 50_000, map[Reason]uint64{})
	g, _, _ = read(t, s, devicetest.IPFIX(0, 0, devicetest.Set(256, record(2))))
	g.check(t, 1, 250, 25_000, map[Reason]uint64{})

	// NetFlow 9: of the system, without a sampler.
	s = NewSession(0)
	options := devicetest.Buffer{}.U16(300, 4, 8, 1, 4, 34, 4, 35, 1)
	g, _, _ = read(t, s, devicetest.NetFlow9(0, 0, time.Hour, devicetest.Set(0, devicetest.Template(256)), devicetest.Set(1, options), devicetest.Set(300, devicetest.Buffer{}.U32(0, 1000).U8(2))), devicetest.NetFlow9(0, 1, time.Hour, devicetest.Set(256, devicetest.Record(1, 2, 200))))
	g.check(t, 1, 2000, 200_000, map[Reason]uint64{})
	// What the configuration says is used instead.
	s = NewSession(10)
	g, _, _ = read(t, s, devicetest.NetFlow9(0, 0, time.Hour, devicetest.Set(0, devicetest.Template(256)), devicetest.Set(1, options), devicetest.Set(300, devicetest.Buffer{}.U32(0, 1000).U8(2)), devicetest.Set(256, devicetest.Record(1, 2, 200))))
	g.check(t, 1, 20, 2000, map[Reason]uint64{})

	names := devicetest.Buffer{}.U16(301, 2, 1, 10, 4, 82, 65535)
	g, _, _ = read(t, NewSession(0), devicetest.IPFIX(0, 0, devicetest.Set(3, names), devicetest.Set(301, devicetest.Buffer{}.U32(7).U8(5).Bytes([]byte("xe-0\x00")).U32(8).U8(3).Bytes([]byte("a\nb")))))
	if g.names[7] != "xe-0" || len(g.names) != 1 {
		t.Errorf("%v", g.names)
	}
	scoped := devicetest.Buffer{}.U16(301, 4, 4, 2, 4, 82, 8)
	g, _, _ = read(t, NewSession(0), devicetest.NetFlow9(0, 0, 0, devicetest.Set(1, scoped), devicetest.Set(301, devicetest.Buffer{}.U32(9).Bytes([]byte("Gi0/9\x00\x00\x00")))))
	if g.names[9] != "Gi0/9" {
		t.Errorf("%v", g.names)
	}
}

func TestSFlow(t *testing.T) {
	tcp := packet.Eth().VLAN(5).IPv4("10.0.0.1", "192.0.2.80").TTL(61).TCP(2000, 443).Flags(0x18).Payload(1000).Bytes()
	udp := packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(2000, 53).Payload(100).Bytes()
	arp := packet.Eth().Bytes()
	s := NewSession(0)
	g, units, _ := read(t, s, devicetest.SFlow(1, time.Hour, devicetest.Sample(400, 3, 3, 4, 0, tcp[:128], len(tcp)), devicetest.Sample(400, 4, 3, 4, 9, udp[:128], len(udp)), devicetest.Sample(400, 3, 3, 4, 0, arp, len(arp))))
	g.check(t, 2, 800, 400*uint64(len(tcp)-18+len(udp)-14), map[Reason]uint64{NoFlow: 1})
	a, b := g.flows[0], g.flows[1]
	if units != 1 || a.VLAN != 5 || a.TTLMin != 61 || a.TCPFlags != 0x18 || a.SrcPort != 2000 || a.WireBytes != 400*uint64(len(tcp)) || a.PayloadBytes != 400_000 || g.ifaces[0] != [2]uint32{3, 4} || a.Direction != flow.Ingress {
		t.Errorf("%+v %v", a, g.ifaces)
	}
	if !b.IPv6 || b.DstPort != 53 || b.Direction != flow.Egress || g.ifaces[1] != [2]uint32{4, 3} {
		t.Errorf("%+v %v", b, g.ifaces)
	}
	g, _, _ = read(t, s, devicetest.SFlow(2, time.Hour, devicetest.Sample(400, 4, 3, 4, 12, udp[:128], len(udp))))
	g.check(t, 1, 400, 400*uint64(len(udp)-14), map[Reason]uint64{DeviceDrops: 3})
}

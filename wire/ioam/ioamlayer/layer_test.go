package ioamlayer_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ioam/ioamlayer"
	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
	"github.com/waymark-net/waymark/wire/pdm/pdmlayer"
)

// hopByHop are bodies of the four kinds in a Hop-by-Hop Options header.
func hopByHop() []ioam.Body {
	return []ioam.Body{
		&ioam.Trace{Namespace: 1, NodeLen: 1, Remaining: 1, Type: 0x800000, Data: []byte{0, 0, 0, 0, 63, 0, 0, 1}},
		&ioam.Trace{Incremental: true, Namespace: 1, NodeLen: 1, Remaining: 2, Type: 0x800000, Data: []byte{63, 0, 0, 1}},
		&ioam.POT{Namespace: 1, PktID: 2, Cumulative: 3},
		&ioam.DEX{Namespace: 1, Type: 0x800000, Extension: ioam.DEXSequence, Sequence: 4},
	}
}

func e2e() ioam.Body {
	return &ioam.E2E{Namespace: 1, Type: ioam.E2ESequence32, Sequence32: 5}
}

func layer(header layers.IPProtocol, bodies ...ioam.Body) *ioamlayer.Layer {
	l := &ioamlayer.Layer{Header: header, NextHeader: layers.IPProtocolUDP}
	for _, b := range bodies {
		l.Options = append(l.Options, ioamlayer.Option{Body: b})
	}
	return l
}

// frame is a UDP packet with these layers behind the IPv6 header.
func frame(t testing.TB, headers ...gopacket.SerializableLayer) []byte {
	t.Helper()
	ip := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolIPv6Destination,
		SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2"),
	}
	if l, ok := headers[0].(*ioamlayer.Layer); ok {
		ip.NextHeader = l.Header
	}
	udp := &layers.UDP{SrcPort: 40000, DstPort: 4242}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	ethernet := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv6}
	all := append(append([]gopacket.SerializableLayer{ethernet, ip}, headers...), udp, gopacket.Payload("hello"))
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// What is serialized is what package ioam finds, and without a problem.
func TestSerializeIsReadByIOAM(t *testing.T) {
	first := layer(layers.IPProtocolIPv6HopByHop, hopByHop()...)
	first.NextHeader = layers.IPProtocolIPv6Destination
	found, err := ioam.Find(frame(t, first, layer(layers.IPProtocolIPv6Destination, e2e()))[14:])
	if err != nil || len(found) != 5 {
		t.Fatalf("%d options, %v", len(found), err)
	}
	for i, want := range append(hopByHop(), e2e()) {
		got, err := found[i].Decode()
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%v: %v, %s", want.Kind(), err, d)
		}
	}
}

func TestDecodingLayerParser(t *testing.T) {
	var (
		ethernet layers.Ethernet
		ip       layers.IPv6
		options  ioamlayer.Layer
		udp      layers.UDP
		body     gopacket.Payload
	)
	first := layer(layers.IPProtocolIPv6HopByHop, hopByHop()...)
	first.NextHeader = layers.IPProtocolIPv6Destination
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &ethernet, &ip, &options, &udp, &body)
	var found []gopacket.LayerType
	if err := parser.DecodeLayers(frame(t, first, layer(layers.IPProtocolIPv6Destination, e2e())), &found); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]ioam.Body{e2e()}, options.Bodies()); d != "" || udp.DstPort != 4242 || string(body) != "hello" {
		t.Errorf("port %d, %q, %s", udp.DstPort, body, d)
	}
	l, err := ioamlayer.FromHopByHop(ip.HopByHop)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(hopByHop(), l.Bodies()); d != "" {
		t.Error(d)
	}
}

func TestNewPacket(t *testing.T) {
	pdmlayer.Register()
	ioamlayer.Register()
	first := layer(layers.IPProtocolIPv6HopByHop, hopByHop()...)
	first.NextHeader = layers.IPProtocolIPv6Destination
	p := gopacket.NewPacket(frame(t, first, layer(layers.IPProtocolIPv6Destination, e2e())), layers.LayerTypeEthernet, gopacket.Default)
	var bodies []ioam.Body
	for _, l := range p.Layers() {
		if l, ok := l.(*ioamlayer.Layer); ok {
			bodies = append(bodies, l.Bodies()...)
		}
	}
	if d := cmp.Diff(append(hopByHop(), e2e()), bodies); d != "" || p.ErrorLayer() != nil || p.Layer(layers.LayerTypeUDP) == nil {
		t.Errorf("%v, %s", p, d)
	}

	// Headers without IOAM stay what they were: PDM, and gopacket's own.
	p = gopacket.NewPacket(frame(t, &pdmlayer.Layer{NextHeader: layers.IPProtocolUDP, Option: pdm.Option{PSNTP: 1}}), layers.LayerTypeEthernet, gopacket.Default)
	if p.Layer(pdmlayer.LayerTypePDM) == nil || p.Layer(layers.LayerTypeUDP) == nil {
		t.Errorf("PDM became %v", p)
	}
	other := layer(layers.IPProtocolIPv6HopByHop)
	other.Options = []ioamlayer.Option{{Raw: []byte{5, 2, 0, 0}}}
	p = gopacket.NewPacket(frame(t, other), layers.LayerTypeEthernet, gopacket.Default)
	if p.Layer(layers.LayerTypeIPv6HopByHop) == nil || p.Layer(layers.LayerTypeUDP) == nil {
		t.Errorf("a router alert became %v", p)
	}
}

func TestFromHeaders(t *testing.T) {
	var d layers.IPv6Destination
	if err := d.DecodeFromBytes(frame(t, layer(layers.IPProtocolIPv6Destination, e2e()))[54:], gopacket.NilDecodeFeedback); err != nil {
		t.Fatal(err)
	}
	l, err := ioamlayer.FromDestination(&d)
	if err != nil || l.NextHeader != layers.IPProtocolUDP || len(l.Bodies()) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	marked := pdm.AppendHeader(nil, 17, pdm.Option{})
	if err := d.DecodeFromBytes(marked, gopacket.NilDecodeFeedback); err != nil {
		t.Fatal(err)
	}
	if _, err := ioamlayer.FromDestination(&d); !errors.Is(err, ioamlayer.ErrNone) {
		t.Errorf("PDM alone: %v", err)
	}
}

func TestRefuses(t *testing.T) {
	var l ioamlayer.Layer
	whole := frame(t, layer(layers.IPProtocolIPv6Destination, e2e()))[54:]
	if err := l.DecodeFromBytes(whole[:12], gopacket.NilDecodeFeedback); !errors.Is(err, ipv6.ErrTruncated) {
		t.Errorf("truncated: %v", err)
	}
	for _, o := range [][]ioamlayer.Option{
		{{}}, {{Body: &ioam.Trace{Data: make([]byte, 300)}}}, {{Raw: make([]byte, 2048)}},
	} {
		l := ioamlayer.Layer{Options: o}
		if err := l.SerializeTo(gopacket.NewSerializeBuffer(), gopacket.SerializeOptions{}); err == nil {
			t.Errorf("serialized: %+v", o)
		}
	}
}

// Serializing what was decoded gives the same bytes, whatever the header holds and
// whatever is wrong with its options.
func FuzzDecodeFromBytes(f *testing.F) {
	f.Add(frame(f, layer(layers.IPProtocolIPv6HopByHop, hopByHop()...))[54:], true)
	f.Add(frame(f, layer(layers.IPProtocolIPv6Destination, e2e()))[54:], false)
	f.Add([]byte{17, 0, 0x31, 2, 0, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, data []byte, first bool) {
		var l ioamlayer.Layer
		if first {
			l.Header = layers.IPProtocolIPv6HopByHop
		}
		if err := l.DecodeFromBytes(data, gopacket.NilDecodeFeedback); err != nil {
			return
		}
		buf := gopacket.NewSerializeBuffer()
		if err := l.SerializeTo(buf, gopacket.SerializeOptions{}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buf.Bytes(), l.Contents) {
			t.Errorf("serialized %x, decoded from %x", buf.Bytes(), l.Contents)
		}
	})
}

// A header of any bodies, with other options between them, comes back.
func TestSerializeDecodeIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &ioamlayer.Layer{Header: layers.IPProtocolIPv6HopByHop, NextHeader: layers.IPProtocolUDP}
		var want []ioam.Body
		for range rapid.IntRange(1, 5).Draw(t, "options") {
			if rapid.Bool().Draw(t, "other") {
				l.Options = append(l.Options, ioamlayer.Option{Raw: append([]byte{0x1E, 3}, rapid.SliceOfN(rapid.Byte(), 3, 3).Draw(t, "data")...)})
			}
			b := rapid.SampledFrom(hopByHop()).Draw(t, "body")
			want = append(want, b)
			l.Options = append(l.Options, ioamlayer.Option{Body: b})
		}
		buf := gopacket.NewSerializeBuffer()
		if err := l.SerializeTo(buf, gopacket.SerializeOptions{}); err != nil {
			t.Fatal(err)
		}
		back := ioamlayer.Layer{Header: layers.IPProtocolIPv6HopByHop}
		if err := back.DecodeFromBytes(buf.Bytes(), gopacket.NilDecodeFeedback); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, back.Bodies()); d != "" || back.NextHeader != l.NextHeader {
			t.Fatal(d)
		}
		for _, o := range back.Options {
			if o.Problems != nil {
				t.Fatal(o.Problems)
			}
		}
	})
}

func Example() {
	ip := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolIPv6HopByHop,
		SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2"),
	}
	trace, err := ioam.NewTrace(1, ioam.HopLimitNodeID, 8)
	if err != nil {
		fmt.Println(err)
		return
	}
	options := &ioamlayer.Layer{NextHeader: layers.IPProtocolUDP, Options: []ioamlayer.Option{{Body: trace}}}
	udp := &layers.UDP{SrcPort: 40000, DstPort: 4242}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, ip, options, udp); err != nil {
		fmt.Println(err)
		return
	}

	var got layers.IPv6
	if err := got.DecodeFromBytes(buf.Bytes(), gopacket.NilDecodeFeedback); err != nil {
		fmt.Println(err)
		return
	}
	l, err := ioamlayer.FromHopByHop(got.HopByHop)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, b := range l.Bodies() {
		fmt.Println(b.Kind(), "before", l.NextHeader)
	}
	// Output: pre-allocated trace before UDP
}

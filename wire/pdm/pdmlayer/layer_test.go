package pdmlayer_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
	"github.com/waymark-net/waymark/wire/pdm/pdmlayer"
)

// Packet 2 of RFC 8250 appendix C.1.
var reply = pdm.Option{PSNTP: 12, PSNLR: 25, DeltaTLR: 0xDE0B, ScaleDTLR: 46}

func udpPacket(t testing.TB, l gopacket.SerializableLayer, first layers.IPProtocol) []byte {
	t.Helper()
	ip := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: first,
		SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2"),
	}
	udp := &layers.UDP{SrcPort: 40000, DstPort: 4242}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ip, l, udp, gopacket.Payload("hello")); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestSerializeIsTheHeaderOfTheRFC(t *testing.T) {
	pkt := udpPacket(t, &pdmlayer.Layer{NextHeader: layers.IPProtocolUDP, Option: reply}, layers.IPProtocolIPv6Destination)
	if got, want := hex.EncodeToString(pkt[40:56]), "11010f0a2e00000c0019de0b00000100"; got != want {
		t.Errorf("header %s, want %s", got, want)
	}
}

func TestDecodingLayerParser(t *testing.T) {
	var (
		ip   layers.IPv6
		opts pdmlayer.Layer
		udp  layers.UDP
		body gopacket.Payload
	)
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeIPv6, &ip, &opts, &udp, &body)
	pkt := udpPacket(t, &pdmlayer.Layer{NextHeader: layers.IPProtocolUDP, Option: reply}, layers.IPProtocolIPv6Destination)
	var found []gopacket.LayerType
	if err := parser.DecodeLayers(pkt, &found); err != nil {
		t.Fatal(err)
	}
	if opts.Option != reply {
		t.Errorf("option %v, want %v", opts.Option, reply)
	}
	if udp.DstPort != 4242 || string(body) != "hello" {
		t.Errorf("behind the option: port %d, body %q", udp.DstPort, body)
	}
}

func TestNewPacket(t *testing.T) {
	pdmlayer.Register()
	pkt := udpPacket(t, &pdmlayer.Layer{NextHeader: layers.IPProtocolUDP, Option: reply}, layers.IPProtocolIPv6Destination)
	p := gopacket.NewPacket(pkt, layers.LayerTypeIPv6, gopacket.Default)
	l, ok := p.Layer(pdmlayer.LayerTypePDM).(*pdmlayer.Layer)
	if !ok {
		t.Fatalf("no PDM layer in %v", p)
	}
	if l.Option != reply {
		t.Errorf("option %v, want %v", l.Option, reply)
	}
	if p.Layer(layers.LayerTypeUDP) == nil || p.ErrorLayer() != nil {
		t.Errorf("behind the option: %v", p)
	}

	// Another option stays gopacket's own layer.
	other := &layers.IPv6Destination{Options: []*layers.IPv6DestinationOption{{OptionType: 0x1E, OptionLength: 4, OptionData: make([]byte, 4)}}}
	other.NextHeader = layers.IPProtocolUDP
	p = gopacket.NewPacket(udpPacket(t, other, layers.IPProtocolIPv6Destination), layers.LayerTypeIPv6, gopacket.Default)
	d, ok := p.Layer(layers.LayerTypeIPv6Destination).(*layers.IPv6Destination)
	if !ok || p.Layer(layers.LayerTypeUDP) == nil {
		t.Fatalf("a header without PDM became %v", p)
	}
	if _, err := pdmlayer.FromDestination(d); !errors.Is(err, pdm.ErrNone) {
		t.Errorf("FromDestination: %v, want %v", err, pdm.ErrNone)
	}
}

func TestFromDestination(t *testing.T) {
	raw := pdm.AppendHeader(nil, 17, reply)
	var d layers.IPv6Destination
	if err := d.DecodeFromBytes(raw, gopacket.NilDecodeFeedback); err != nil {
		t.Fatal(err)
	}
	if got, err := pdmlayer.FromDestination(&d); err != nil || got != reply {
		t.Errorf("FromDestination: %v, %v; want %v", got, err, reply)
	}
}

func TestTruncatedAndOversized(t *testing.T) {
	var l pdmlayer.Layer
	if err := l.DecodeFromBytes(pdm.AppendHeader(nil, 17, reply)[:12], gopacket.NilDecodeFeedback); !errors.Is(err, ipv6.ErrTruncated) {
		t.Errorf("truncated header: %v", err)
	}
	l = pdmlayer.Layer{Before: make([]byte, 2040)}
	if err := l.SerializeTo(gopacket.NewSerializeBuffer(), gopacket.SerializeOptions{}); err == nil {
		t.Error("a header of 2056 bytes was serialized")
	}
}

// Whatever a header holds besides PDM, serializing what was decoded gives the
// same bytes.
func TestDecodeSerializeIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := pdmlayer.Layer{
			NextHeader: layers.IPProtocol(rapid.Uint8().Draw(t, "next")),
			Option: pdm.Option{
				PSNTP: rapid.Uint16().Draw(t, "psntp"), PSNLR: rapid.Uint16().Draw(t, "psnlr"),
				DeltaTLR: rapid.Uint16().Draw(t, "dtlr"), ScaleDTLR: rapid.Uint8().Draw(t, "scale dtlr"),
				DeltaTLS: rapid.Uint16().Draw(t, "dtls"), ScaleDTLS: rapid.Uint8().Draw(t, "scale dtls"),
			},
			Before: options().Draw(t, "before"),
			After:  options().Draw(t, "after"),
		}
		first := serialize(t, &l)
		var back pdmlayer.Layer
		if err := back.DecodeFromBytes(first, gopacket.NilDecodeFeedback); err != nil {
			t.Fatalf("decode %x: %v", first, err)
		}
		if back.Option != l.Option || back.NextHeader != l.NextHeader || !bytes.Equal(back.Before, l.Before) {
			t.Fatalf("decoded %+v from %+v", back, l)
		}
		if d := cmp.Diff(first, serialize(t, &back)); d != "" {
			t.Fatal(d)
		}
	})
}

// options draws a sequence of options that are neither PDM nor PadN.
func options() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		var b []byte
		for range rapid.IntRange(0, 4).Draw(t, "options") {
			data := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "data")
			b = append(b, rapid.SampledFrom([]byte{0x04, 0x1E, 0x3E, 0xC9}).Draw(t, "type"), uint8(len(data)))
			b = append(b, data...)
		}
		return b
	})
}

func serialize(t *rapid.T, l *pdmlayer.Layer) []byte {
	buf := gopacket.NewSerializeBuffer()
	// A buffer that was used before is not zero.
	dirty, err := buf.PrependBytes(256)
	if err != nil {
		t.Fatal(err)
	}
	for i := range dirty {
		dirty[i] = 0xAA
	}
	if err := buf.Clear(); err != nil {
		t.Fatal(err)
	}
	if err := l.SerializeTo(buf, gopacket.SerializeOptions{FixLengths: true}); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}

func FuzzDecodeFromBytes(f *testing.F) {
	f.Add(pdm.AppendHeader(nil, 17, reply))
	f.Add([]byte{17, 0, 0x0F, 0x0A, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		var l pdmlayer.Layer
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

func Example() {
	ip := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolIPv6Destination,
		SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2"),
	}
	mark := &pdmlayer.Layer{
		NextHeader: layers.IPProtocolUDP,
		Option:     pdm.Option{PSNTP: 12, PSNLR: 25, DeltaTLR: 0xDE0B, ScaleDTLR: 46},
	}
	udp := &layers.UDP{SrcPort: 40000, DstPort: 4242}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, ip, mark, udp); err != nil {
		fmt.Println(err)
		return
	}

	var got pdmlayer.Layer
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeIPv6, &layers.IPv6{}, &got, &layers.UDP{})
	var found []gopacket.LayerType
	if err := parser.DecodeLayers(buf.Bytes(), &found); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(got.Option, "before", got.NextHeader)
	// Output: PSNTP 12 PSNLR 25 DTLR 3.999970525s DTLS 0s before UDP
}

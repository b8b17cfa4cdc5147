// Package ioamlayer makes IOAM (RFC 9197, 9326, 9486) a gopacket layer. Input:
// Hop-by-Hop and Destination Options headers of IPv6 packets. Output: [Layer] values
// with the options of all five types; and the reverse.
//
// gopacket decodes a Hop-by-Hop Options header as a part of its IPv6 layer:
// [FromHopByHop] reads IOAM from there, also with a gopacket.DecodingLayerParser. For
// Destination Options headers pass a *[Layer] to the parser, or use [FromDestination].
// With gopacket.NewPacket, call [Register] once.
package ioamlayer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// LayerTypeIOAM is an options header that holds IOAM options. The number is that of the
// RFC, far from those of gopacket.
var LayerTypeIOAM = gopacket.RegisterLayerType(9486, gopacket.LayerTypeMetadata{
	Name:    "IOAM",
	Decoder: gopacket.DecodeFunc(decodeDestination),
})

// ErrNone says that a header has no IOAM option.
var ErrNone = errors.New("ioam: no IOAM option")

// Layer is a Hop-by-Hop or Destination Options header with IOAM options.
type Layer struct {
	layers.BaseLayer
	Header     layers.IPProtocol // which of the two it is; not on the wire
	NextHeader layers.IPProtocol
	Options    []Option // all of the header, with padding, in their order
}

// Option is an option of the header.
type Option struct {
	Body     ioam.Body // nil for an option that is not IOAM or cannot be read
	Problems error     // what is wrong with an IOAM option

	// Raw is the option with type and length. Where it is not nil, it is serialized as
	// it is; set it to nil after a change of Body.
	Raw []byte
}

// LayerType implements gopacket.Layer.
func (l *Layer) LayerType() gopacket.LayerType { return LayerTypeIOAM }

// Bodies are the bodies of the IOAM options.
func (l *Layer) Bodies() (all []ioam.Body) {
	for _, o := range l.Options {
		if o.Body != nil {
			all = append(all, o.Body)
		}
	}
	return all
}

// DecodeFromBytes implements gopacket.DecodingLayer, for a Destination Options header
// unless Header says that it is the other. A header without IOAM is [ErrNone]. Problems
// of an option are no error.
func (l *Layer) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	header := l.Header
	if header != layers.IPProtocolIPv6HopByHop {
		header = layers.IPProtocolIPv6Destination
	}
	e, err := ipv6.ParseExtension(uint8(header), data)
	found, optionsErr := ioam.FindInHeader(uint8(header), data)
	if err = errors.Join(err, optionsErr); err != nil {
		if errors.Is(err, ipv6.ErrTruncated) {
			df.SetTruncated()
		}
		return fmt.Errorf("decode IOAM: %w", err)
	}
	if len(found) == 0 {
		return ErrNone
	}
	*l = Layer{
		BaseLayer:  layers.BaseLayer{Contents: data[:e.Size], Payload: data[e.Size:]},
		Header:     header,
		NextHeader: layers.IPProtocol(e.Next),
	}
	for o := range ipv6.Options(l.Contents) { // without errors, as was seen above
		option := Option{Raw: l.Contents[o.At : o.At+o.Size]}
		if len(found) > 0 && found[0].Offset == o.At {
			option.Body, option.Problems = found[0].Decode()
			found = found[1:]
		}
		l.Options = append(l.Options, option)
	}
	return nil
}

// CanDecode implements gopacket.DecodingLayer: the parser hands over every Destination
// Options header.
func (l *Layer) CanDecode() gopacket.LayerClass { return layers.LayerTypeIPv6Destination }

// NextLayerType implements gopacket.DecodingLayer.
func (l *Layer) NextLayerType() gopacket.LayerType { return l.NextHeader.LayerType() }

// unit is what the size of an options header is a multiple of, align what the place of
// an IOAM option is.
const unit, align = 8, 4

// SerializeTo implements gopacket.SerializableLayer. IOAM options without Raw are
// aligned, and the header is padded, where they need to be.
func (l *Layer) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	header := []byte{uint8(l.NextHeader), 0}
	for i, o := range l.Options {
		if o.Raw != nil {
			header = append(header, o.Raw...)
			continue
		}
		if o.Body == nil {
			return fmt.Errorf("serialize IOAM: option %d has neither Body nor Raw", i)
		}
		header = ipv6.AppendPadding(header, -len(header)&(align-1))
		var err error
		if header, err = ioam.AppendOption(header, o.Body); err != nil {
			return fmt.Errorf("serialize IOAM: option %d: %w", i, err)
		}
	}
	header = ipv6.AppendPadding(header, -len(header)&(unit-1))
	if len(header) > ipv6.MaxExtensionSize {
		return fmt.Errorf("serialize IOAM: header of %d bytes, and %d is the most", len(header), ipv6.MaxExtensionSize)
	}
	header[1] = uint8(len(header)/unit - 1)
	out, err := b.PrependBytes(len(header))
	if err != nil {
		return fmt.Errorf("serialize IOAM: %w", err)
	}
	copy(out, header)
	return nil
}

// FromHopByHop returns the header that gopacket decoded as a part of an IPv6 header. It
// fails as [Layer.DecodeFromBytes] does.
func FromHopByHop(h *layers.IPv6HopByHop) (*Layer, error) {
	l := &Layer{Header: layers.IPProtocolIPv6HopByHop}
	if err := l.DecodeFromBytes(h.Contents, gopacket.NilDecodeFeedback); err != nil {
		return nil, err
	}
	l.Payload = h.Payload
	return l, nil
}

// FromDestination is [FromHopByHop] for a Destination Options header.
func FromDestination(d *layers.IPv6Destination) (*Layer, error) {
	l := &Layer{}
	if err := l.DecodeFromBytes(d.Contents, gopacket.NilDecodeFeedback); err != nil {
		return nil, err
	}
	l.Payload = d.Payload
	return l, nil
}

// destination is the decoder of Destination Options headers without IOAM: gopacket's, or
// one that was registered before.
var destination = layers.IPProtocolMetadata[layers.IPProtocolIPv6Destination].DecodeWith

// decodeDestination is the decoder of gopacket.NewPacket for Destination Options headers.
func decodeDestination(data []byte, p gopacket.PacketBuilder) error {
	l := &Layer{}
	if err := l.DecodeFromBytes(data, p); err != nil {
		return destination.Decode(data, p)
	}
	p.AddLayer(l)
	return p.NextDecoder(l.NextHeader)
}

// decodeIPv6 is gopacket's, but that a Hop-by-Hop Options header with IOAM is a [Layer].
func decodeIPv6(data []byte, p gopacket.PacketBuilder) error {
	ip := &layers.IPv6{}
	err := ip.DecodeFromBytes(data, p)
	p.AddLayer(ip)
	p.SetNetworkLayer(ip)
	if ip.HopByHop != nil {
		if l, err := FromHopByHop(ip.HopByHop); err == nil {
			p.AddLayer(l)
		} else {
			p.AddLayer(ip.HopByHop)
		}
	}
	if err != nil {
		return err
	}
	return p.NextDecoder(ip.NextLayerType())
}

var register sync.Once

// Register makes gopacket.NewPacket decode headers with IOAM options as [Layer], for the
// whole process: Destination Options headers, and Hop-by-Hop Options headers of IPv6
// that is the first layer or is in Ethernet or in IP. Call it before packets are
// decoded. A header with IOAM and PDM is of the package that was registered last. A
// gopacket.DecodingLayerParser is not affected.
func Register() {
	register.Do(func() {
		destination = layers.IPProtocolMetadata[layers.IPProtocolIPv6Destination].DecodeWith
		override(layers.LayerTypeIPv6Destination, decodeDestination)
		layers.IPProtocolMetadata[layers.IPProtocolIPv6Destination].DecodeWith = gopacket.DecodeFunc(decodeDestination)
		override(layers.LayerTypeIPv6, decodeIPv6)
		layers.IPProtocolMetadata[layers.IPProtocolIPv6].DecodeWith = gopacket.DecodeFunc(decodeIPv6)
		layers.EthernetTypeMetadata[layers.EthernetTypeIPv6].DecodeWith = gopacket.DecodeFunc(decodeIPv6)
	})
}

func override(t gopacket.LayerType, decode gopacket.DecodeFunc) {
	gopacket.OverrideLayerType(int(t), gopacket.LayerTypeMetadata{Name: t.String(), Decoder: decode})
}

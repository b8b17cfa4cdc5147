// Package pdmlayer makes PDM (RFC 8250) a gopacket layer. Input: Destination
// Options headers of IPv6 packets. Output: [Layer] values; and the reverse.
//
// With a gopacket.DecodingLayerParser, pass a *[Layer] alongside layers.IPv6. With
// gopacket.NewPacket, call [Register] once. Without either, [FromDestination]
// reads PDM from the layer gopacket decodes on its own.
package pdmlayer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

// LayerTypePDM is a Destination Options header that holds a PDM option. The
// number is that of the RFC, far from those of gopacket.
var LayerTypePDM = gopacket.RegisterLayerType(8250, gopacket.LayerTypeMetadata{
	Name:    "PDM",
	Decoder: gopacket.DecodeFunc(decode),
})

// Layer is a Destination Options header and the PDM option in it.
type Layer struct {
	layers.BaseLayer
	pdm.Option
	NextHeader layers.IPProtocol

	// Before and After are the other options of the header, as on the wire and
	// with their padding. Both may be nil when a layer is serialized.
	Before, After []byte
}

// LayerType implements gopacket.Layer.
func (l *Layer) LayerType() gopacket.LayerType { return LayerTypePDM }

// String is the option's; without it the embedded types would contend.
func (l *Layer) String() string { return l.Option.String() }

// DecodeFromBytes implements gopacket.DecodingLayer. A header without PDM is
// [pdm.ErrNone].
func (l *Layer) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	o, h, err := pdm.DecodeHeader(data)
	if err != nil {
		if errors.Is(err, ipv6.ErrTruncated) {
			df.SetTruncated()
		}
		return err
	}
	*l = Layer{
		BaseLayer:  layers.BaseLayer{Contents: data[:h.Size], Payload: data[h.Size:]},
		Option:     o,
		NextHeader: layers.IPProtocol(h.Next),
		Before:     data[2:h.Option],
		After:      data[h.Option+pdm.OptionSize : h.Size],
	}
	return nil
}

// CanDecode implements gopacket.DecodingLayer: the parser hands over every
// Destination Options header.
func (l *Layer) CanDecode() gopacket.LayerClass { return layers.LayerTypeIPv6Destination }

// NextLayerType implements gopacket.DecodingLayer.
func (l *Layer) NextLayerType() gopacket.LayerType { return l.NextHeader.LayerType() }

// maxHeaderSize is what an 8-bit count of eight bytes can say.
const maxHeaderSize = 256 * 8

// SerializeTo implements gopacket.SerializableLayer. The header is padded to a
// multiple of eight bytes where it needs to be.
func (l *Layer) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	size := 2 + len(l.Before) + pdm.OptionSize + len(l.After)
	padded := (size + 7) &^ 7
	if padded > maxHeaderSize {
		return fmt.Errorf("serialize PDM: header of %d bytes, and %d is the most", padded, maxHeaderSize)
	}
	out, err := b.PrependBytes(padded)
	if err != nil {
		return fmt.Errorf("serialize PDM: %w", err)
	}
	out[0], out[1] = uint8(l.NextHeader), uint8(padded/8-1)
	head := append(out[:2], l.Before...)
	head = l.AppendTo(head)
	head = append(head, l.After...)
	pad(out[len(head):])
	return nil
}

// pad fills fewer than eight bytes with one Pad1 or PadN option.
func pad(b []byte) {
	clear(b) // the buffer is not
	if len(b) > 1 {
		b[0], b[1] = 1, uint8(len(b)-2)
	}
}

// destination is the decoder of Destination Options headers without PDM: gopacket's, or
// one that was registered before.
var destination = layers.IPProtocolMetadata[layers.IPProtocolIPv6Destination].DecodeWith

// decode is the decoder of gopacket.NewPacket: headers without PDM stay what
// gopacket makes of them.
func decode(data []byte, p gopacket.PacketBuilder) error {
	l := &Layer{}
	if err := l.DecodeFromBytes(data, p); err != nil {
		return destination.Decode(data, p)
	}
	p.AddLayer(l)
	return p.NextDecoder(l.NextHeader)
}

var register sync.Once

// Register makes gopacket.NewPacket decode Destination Options headers that hold
// PDM as [Layer], for the whole process. Call it before packets are decoded. A
// gopacket.DecodingLayerParser is not affected.
func Register() {
	register.Do(func() {
		own := gopacket.DecodeFunc(decode)
		destination = layers.IPProtocolMetadata[layers.IPProtocolIPv6Destination].DecodeWith
		layers.IPProtocolMetadata[layers.IPProtocolIPv6Destination].DecodeWith = own
		gopacket.OverrideLayerType(int(layers.LayerTypeIPv6Destination), gopacket.LayerTypeMetadata{
			Name:    layers.LayerTypeIPv6Destination.String(),
			Decoder: own,
		})
	})
}

// FromDestination returns the PDM option of a Destination Options header that
// gopacket decoded. It fails as [pdm.DecodeHeader] does.
func FromDestination(d *layers.IPv6Destination) (pdm.Option, error) {
	o, _, err := pdm.DecodeHeader(d.Contents)
	return o, err
}

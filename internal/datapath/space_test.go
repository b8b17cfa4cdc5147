package datapath

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath/parsetest"
	"github.com/waymark-net/waymark/test/packet"
)

// TestSpace: two stages insert a header each into one packet, whose size changes
// once, and remove them again: byte for byte what the packet builder makes.
func TestSpace(t *testing.T) {
	spec, err := parsetest.LoadSpace()
	if err != nil {
		t.Fatal(err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer coll.Close()
	change := func(program string, frame []byte) ([]byte, parsetest.SpaceResult) {
		t.Helper()
		opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
		result, err := coll.Programs[program].Run(&opts)
		if err != nil {
			t.Fatalf("%s, %d bytes: %v", program, len(frame), err)
		}
		return opts.DataOut, parsetest.SpaceResult(result)
	}

	ip := packet.Builder{}.Eth().IPv6("fd00::1", "fd00::2")
	pad := func(n int) packet.Option { return packet.Option{Type: 1, Data: make([]byte, n)} }
	udp := func(b packet.Builder) packet.Builder { return b.UDP(1000, 2000).Payload(100) }
	none := func(b packet.Builder) packet.Builder { return b }
	for name, between := range map[string]func(packet.Builder) packet.Builder{
		"no extension headers": none,
		"routing":              func(b packet.Builder) packet.Builder { return b.Routing("fd00::3") },
		"options":              func(b packet.Builder) packet.Builder { return b.DestOpts(pad(20)) },
		"four headers": func(b packet.Builder) packet.Builder {
			return b.DestOpts(pad(4)).Routing("fd00::3").Fragment(0, false, 7).DestOpts(pad(28))
		},
		"as many bytes as are moved": func(b packet.Builder) packet.Builder { return b.DestOpts(pad(252), pad(252)) },
	} {
		before := udp(between(ip)).Bytes()
		after := udp(between(ip.HopByHop(pad(4))).DestOpts(pad(12))).Bytes()
		got, result := change("test_grow", before)
		if result != parsetest.SpaceOK || !bytes.Equal(got, after) {
			t.Errorf("%s: growing gives result %d\n got %x\nwant %x", name, result, got, after)
			continue
		}
		got, result = change("test_shrink", after)
		if result != parsetest.SpaceOK || !bytes.Equal(got, before) {
			t.Errorf("%s: shrinking gives result %d\n got %x\nwant %x", name, result, got, before)
		}
	}

	// What cannot grow stays as it is, with a reason.
	tagged := udp(packet.Builder{}.Eth().EtherType(packet.TypeVLAN).IPv6("fd00::1", "fd00::2"))
	for name, refused := range map[string]struct {
		frame packet.Builder
		want  parsetest.SpaceResult
	}{
		"more than is moved":      {udp(ip.DestOpts(pad(252), pad(252), pad(4))), parsetest.SpaceDeep},
		"longer than a packet":    {udp(ip.PayloadLength(0xffff - 23)), parsetest.SpaceTooLong},
		"its length is elsewhere": {udp(ip.PayloadLength(0)), parsetest.SpaceJumbogram},
		"not IPv6 to the kernel":  {tagged, parsetest.SpaceRefused},
	} {
		before := refused.frame.Bytes()
		if got, result := change("test_grow", before); result != refused.want || !bytes.Equal(got, before) {
			t.Errorf("%s: result %d, want %d; or the frame changed", name, result, refused.want)
		}
	}
}

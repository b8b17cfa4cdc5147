package offline_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/inband/offline"
)

var at = time.Date(2025, 3, 1, 10, 0, 0, 123456789, time.UTC)

// classic is a pcap file in either byte order and resolution.
func classic(order binary.AppendByteOrder, magic uint32, link capfile.LinkType, unit time.Duration, frames ...[]byte) []byte {
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(b, 2)
	b = order.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...)
	b = order.AppendUint32(b, 65536)
	b = order.AppendUint32(b, uint32(link))
	for i, f := range frames {
		t := at.Add(time.Duration(i) * time.Second)
		b = order.AppendUint32(b, uint32(t.Unix()))
		b = order.AppendUint32(b, uint32(time.Duration(t.Nanosecond())/unit))
		b = order.AppendUint32(b, uint32(len(f)))
		b = order.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

const (
	magicMicro = 0xA1B2C3D4
	magicNano  = 0xA1B23C4D
)

// ng is a pcapng file with two interfaces of different link types.
func ng(t testing.TB, frames ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.AddInterface(pcapgo.NgInterface{LinkType: layers.LinkTypeRaw, TimestampResolution: 9})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		info := gopacket.CaptureInfo{Timestamp: at.Add(time.Duration(i) * time.Second), CaptureLength: len(f), Length: len(f), InterfaceIndex: i % 2 * second}
		if err := w.WritePacket(info, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pack(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Whatever a file holds, reading it ends, and every frame is what was read.
func FuzzScan(f *testing.F) {
	eth := marked(f, udpTo(53))
	f.Add(classic(binary.LittleEndian, magicMicro, capfile.LinkEthernet, time.Microsecond, eth))
	f.Add(classic(binary.BigEndian, magicNano, capfile.LinkRaw, time.Nanosecond, eth[14:]))
	f.Add(ng(f, eth, eth[14:]))
	f.Add(pack(f, ng(f, eth)))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := capfile.NewReader(bytes.NewReader(file))
		if err != nil {
			return
		}
		table := offline.NewTable()
		seen := uint64(0)
		sum, _ := offline.Scan(r, table, func(*offline.Packet) bool { return true }, func(p *offline.Packet, _ inband.Observation) error {
			if p.Err == nil {
				seen++
			}
			return nil
		})
		if sum.Marked != seen || sum.Marked > sum.Packets {
			t.Errorf("%+v, %d seen", sum, seen)
		}
		packets := sum.PacketsDropped
		for _, c := range table.Conversations() {
			packets += c.Client().Packets + c.Server().Packets
		}
		if packets != seen {
			t.Errorf("%d packets in flows, %d seen", packets, seen)
		}
	})
}

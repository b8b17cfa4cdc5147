package capfile

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// blocks builds a file by hand, in either order of bytes.
type blocks struct {
	binary.AppendByteOrder
	file []byte
}

func (b *blocks) add(kind uint32, body ...any) *blocks {
	var p []byte
	for _, v := range body {
		switch v := v.(type) {
		case int:
			p = b.AppendUint32(p, uint32(v))
		case uint16:
			p = b.AppendUint16(p, v)
		case []byte:
			p = append(append(p, v...), make([]byte, -len(v)&3)...)
		}
	}
	b.file = b.AppendUint32(b.AppendUint32(b.file, kind), uint32(len(p)+12))
	b.file = b.AppendUint32(append(b.file, p...), uint32(len(p)+12))
	return b
}

func (b *blocks) section(version uint16) *blocks {
	return b.add(blockSection, byteOrderMagic, version, uint16(0), -1, -1)
}

// oracle reads a file with another library.
func oracle(t *testing.T, file []byte) (frames []Frame) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
	must(t, err)
	for {
		data, info, err := r.ReadPacketData()
		if err == io.EOF {
			return frames
		}
		must(t, err)
		frames = append(frames, Frame{
			Number: len(frames) + 1, Time: info.Timestamp, Link: LinkType(info.AncillaryData[0].(layers.LinkType)), Data: data, Length: info.Length,
		})
	}
}

// Blocks of all kinds, resolutions of times and both orders of bytes are read as another library reads them.
func TestBlocks(t *testing.T) {
	data := frame(3)
	for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
		b := (&blocks{AppendByteOrder: order}).section(1)
		b.add(blockInterface, uint16(LinkEthernet), uint16(0), 20)
		b.add(blockInterface, uint16(LinkRaw), uint16(0), 0, uint16(optUnit), uint16(1), []byte{9}, uint16(optOffset), uint16(8), order.AppendUint64(nil, 77))
		b.add(blockInterface, uint16(LinkIPv6), uint16(0), 0, uint16(optUnit), uint16(1), []byte{0x80 | 9}, uint16(optEnd), uint16(0))
		b.add(0xbad, 1, 2, 3)
		for i := range 3 {
			b.add(blockEnhanced, i, 0x60000, 0x1234567, len(data), 100+i, data)
			b.add(blockPacket, uint16(i), uint16(9), 0x60000, 0x1234567, len(data), 100+i, data)
		}
		b.add(blockSimple, 23, data[:20]).add(blockStatistics, 0, 0, 0)
		b.section(2).add(blockEnhanced, 7).section(1).add(blockInterface, uint16(LinkEthernet), uint16(0), 0)
		b.add(blockSimple, len(data), data)
		_, got, err := read(b.file)
		must(t, err)
		if len(got) != 8 || got[7].Iface != 3 {
			t.Errorf("%s: %+v, want 8 frames, the last of the fourth interface", name, got)
		}
		want := oracle(t, b.file)
		for i := range got {
			got[i].Iface = 0
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: other than read by another library (-)\n%s", name, d)
		}
	}
}

// What a damaged block lacks is named.
func TestDamagedBlocks(t *testing.T) {
	begin := func() *blocks {
		return (&blocks{AppendByteOrder: binary.LittleEndian}).section(1).add(blockInterface, uint16(LinkEthernet), uint16(0), 0)
	}
	ends := begin().add(blockSimple, 0).file
	ends[len(ends)-4]++
	for want, file := range map[string][]byte{
		"length of 8 bytes":      append(begin().file, 6, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0),
		"length of 13 bytes":     append(begin().file, 6, 0, 0, 0, 13, 0, 0, 0, 8, 0, 0, 0),
		"at most 16777216":       append(begin().file, 6, 0, 0, 0, 0, 0, 0, 2, 8, 0, 0, 0),
		"of 17 at its end":       ends,
		"interface 5":            begin().add(blockEnhanced, 5, 0, 0, 0, 0).file,
		"too short":              begin().add(blockEnhanced, 0, 0, 0, 5, 5, []byte("four")).file,
		"too short for":          begin().add(blockSimple, 5, []byte("four")).file,
		"too short for what":     begin().add(blockEnhanced, 0, 0, 0, 0, 0, uint16(1), uint16(9)).file,
		"too short for what it":  begin().add(blockInterface, 1).file,
		"10^-20 seconds":         begin().add(blockInterface, 1, 0, uint16(optUnit), uint16(1), []byte{20}).file,
		"2^-64 seconds":          begin().add(blockInterface, 1, 0, uint16(optUnit), uint16(1), []byte{0xc0}).file,
		"the section has none":   begin().section(1).add(blockSimple, 0).file,
		"order its bytes are":    append(begin().file, 0xa, 0xd, 0xd, 0xa, 28, 0, 0, 0, 1, 2, 3, 4),
		"too short for what it ": (&blocks{AppendByteOrder: binary.LittleEndian}).add(blockSection, byteOrderMagic).file,
	} {
		if _, _, err := read(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What is written is what another library reads.
func TestWriter(t *testing.T) {
	var file bytes.Buffer
	w, err := NewWriter(&file, "waymark test")
	must(t, err)
	for _, i := range []Interface{{Name: "eth0", Filter: "udp", Link: LinkEthernet, Snap: 96}, {Name: "tun0", Link: LinkRaw, Snap: 64}} {
		_, err := w.Add(i)
		must(t, err)
	}
	whole := Packet{
		Frame:    Frame{Number: 7, Time: start, Data: frame(3), Length: 1003, Iface: 1, Direction: Inbound},
		Comments: []string{"one", "two, three"}, Queue: 5, Lost: 9, Verdict: Verdict{VerdictXDP, 1},
	}
	must(t, w.Write(&whole))
	must(t, w.End(1, Statistics{From: start, To: start.Add(time.Second), Received: 12, Lost: 11}))

	var stats pcapgo.NgInterfaceStatistics
	r, err := pcapgo.NewNgReader(bytes.NewReader(file.Bytes()), pcapgo.NgReaderOptions{
		WantMixedLinkType: true, StatisticsCallback: func(_ int, s pcapgo.NgInterfaceStatistics) { stats = s },
	})
	must(t, err)
	data, info, opts, err := r.ReadPacketDataWithOptions()
	must(t, err)
	want := gopacket.CaptureInfo{Timestamp: start, CaptureLength: 23, Length: 1003, InterfaceIndex: 1, AncillaryData: []any{layers.LinkTypeRaw}}
	if d := cmp.Diff(want, info); d != "" || !bytes.Equal(data, frame(3)) {
		t.Errorf("%x\n%s", data, d)
	}
	if !slices.Equal(opts.Comments, whole.Comments) || *opts.PacketID != 7 || *opts.Queue != 5 || *opts.DropCount != 9 ||
		opts.Flags.Direction != pcapgo.NgEpbFlagDirectionInbound || opts.Verdicts[0].Type != pcapgo.NgEpbVerdictTypeLinuxeBPFXDP ||
		binary.LittleEndian.Uint64(opts.Verdicts[0].Data) != 1 {
		t.Errorf("%+v", opts)
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Errorf("%v behind the last packet", err)
	}
	if stats.PacketsReceived != 12 || stats.PacketsDropped != 11 || !stats.StartTime.Equal(start) || !stats.EndTime.Equal(start.Add(time.Second)) {
		t.Errorf("%+v", stats)
	}
	one, err := r.Interface(0)
	must(t, err)
	if one.Name != "eth0" || one.Filter != "udp" || one.SnapLength != 96 || r.SectionInfo().Application != "waymark test" {
		t.Errorf("%+v %+v", one, r.SectionInfo())
	}
	_, frames, err := read(file.Bytes())
	must(t, err)
	whole.Number, whole.Link = 1, LinkRaw
	if d := cmp.Diff([]Frame{whole.Frame}, frames); d != "" {
		t.Errorf("read back\n%s", d)
	}
}

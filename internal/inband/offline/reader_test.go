package offline_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/inband/offline"
)

var at = time.Date(2025, 3, 1, 10, 0, 0, 123456789, time.UTC)

// classic is a pcap file in either byte order and resolution.
func classic(order binary.AppendByteOrder, magic uint32, link layers.LinkType, unit time.Duration, frames ...[]byte) []byte {
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

func readAll(t *testing.T, file []byte) []offline.Frame {
	t.Helper()
	r, err := offline.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var frames []offline.Frame
	for {
		f, err := r.Next()
		if err == io.EOF {
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
	}
}

func TestReaderClassic(t *testing.T) {
	for _, c := range []struct {
		name  string
		order binary.AppendByteOrder
		magic uint32
		unit  time.Duration
	}{
		{"little endian, microseconds", binary.LittleEndian, magicMicro, time.Microsecond},
		{"big endian, microseconds", binary.BigEndian, magicMicro, time.Microsecond},
		{"little endian, nanoseconds", binary.LittleEndian, magicNano, time.Nanosecond},
		{"big endian, nanoseconds", binary.BigEndian, magicNano, time.Nanosecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := readAll(t, classic(c.order, c.magic, layers.LinkTypeEthernet, c.unit, []byte("one"), []byte("three")))
			want := []offline.Frame{
				{Number: 1, Time: at.Truncate(c.unit), Link: layers.LinkTypeEthernet, Data: []byte("one")},
				{Number: 2, Time: at.Add(time.Second).Truncate(c.unit), Link: layers.LinkTypeEthernet, Data: []byte("three")},
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

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

func TestReaderNg(t *testing.T) {
	got := readAll(t, ng(t, []byte("one"), []byte("three")))
	want := []offline.Frame{
		{Number: 1, Time: at, Link: layers.LinkTypeEthernet, Data: []byte("one")},
		{Number: 2, Time: at.Add(time.Second), Link: layers.LinkTypeRaw, Data: []byte("three")},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A Simple Packet Block has no time.
func TestReaderNgWithoutTime(t *testing.T) {
	file := ng(t)
	block := binary.LittleEndian.AppendUint32(nil, 3)
	block = binary.LittleEndian.AppendUint32(block, 16+4)
	block = binary.LittleEndian.AppendUint32(block, 3)
	block = append(block, "one\x00"...)
	block = binary.LittleEndian.AppendUint32(block, 16+4)
	got := readAll(t, append(file, block...))
	if len(got) != 1 || string(got[0].Data) != "one" || !got[0].Time.IsZero() {
		t.Errorf("%+v", got)
	}
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

func TestReaderGzip(t *testing.T) {
	for _, file := range [][]byte{
		classic(binary.LittleEndian, magicMicro, layers.LinkTypeEthernet, time.Microsecond, []byte("one")),
		ng(t, []byte("one")),
	} {
		if got := readAll(t, pack(t, file)); len(got) != 1 || string(got[0].Data) != "one" {
			t.Errorf("%+v", got)
		}
	}
}

// Cut anywhere, a file gives its whole frames, and an error that says where that
// begins which is not whole.
func TestReaderOfTruncated(t *testing.T) {
	pcap := classic(binary.LittleEndian, magicMicro, layers.LinkTypeEthernet, time.Microsecond, []byte("one"), []byte("three"))
	checkTruncated(t, pcap, []cutAt{{24, 24, 0}, {24 + 16 + 3, 24 + 16 + 3, 1}, {len(pcap), 0, 2}})

	pcapng := ng(t, []byte("one"), []byte("three"))
	var cuts []cutAt
	frames, from := 0, 0
	for at := 0; at < len(pcapng); {
		size := int(binary.LittleEndian.Uint32(pcapng[at+4:]))
		switch {
		case at == 0:
			from = size // the section header is read first
		case binary.LittleEndian.Uint32(pcapng[at:]) == 6:
			frames++
			from = at + size
		}
		at += size
		cuts = append(cuts, cutAt{at, from, frames})
	}
	checkTruncated(t, pcapng, cuts)
}

// cutAt is an end where a file is complete, with so many frames; cut behind it,
// the error is at octet from.
type cutAt struct{ end, from, frames int }

func checkTruncated(t *testing.T, file []byte, cuts []cutAt) {
	t.Helper()
	for n := cuts[0].end; n <= len(file); n++ {
		c := cuts[0]
		for _, later := range cuts {
			if later.end <= n {
				c = later
			}
		}
		r, err := offline.NewReader(bytes.NewReader(file[:n]))
		if err != nil {
			t.Errorf("cut at %d: %v", n, err)
			continue
		}
		frames := -1
		for err == nil {
			_, err = r.Next()
			frames++
		}
		if frames != c.frames {
			t.Errorf("cut at %d: %d frames, want %d", n, frames, c.frames)
		}
		var bad *offline.FileError
		switch {
		case n == c.end:
			if err != io.EOF {
				t.Errorf("cut at %d, behind a whole record: %v", n, err)
			}
		case !errors.As(err, &bad), !errors.Is(err, io.ErrUnexpectedEOF):
			t.Errorf("cut at %d: %v", n, err)
		case bad.Offset != int64(c.from) || bad.Frame != frames+1:
			t.Errorf("cut at %d: %v, want it at octet %d", n, err, c.from)
		}
	}
	for n := range cuts[0].end {
		if _, err := offline.NewReader(bytes.NewReader(file[:n])); err == nil {
			t.Errorf("cut at %d, in the file header: no error", n)
		}
	}
}

func TestReaderErrors(t *testing.T) {
	pcap := classic(binary.LittleEndian, magicMicro, layers.LinkTypeEthernet, time.Microsecond, []byte("one"))
	version := bytes.Clone(pcap)
	version[4] = 9
	for _, c := range []struct {
		name string
		file []byte
		want string
		is   error
	}{
		{"empty", nil, "at octet 0: neither pcap nor pcapng: it is empty", offline.ErrFormat},
		{"two octets", []byte("hi"), "at octet 0: neither pcap nor pcapng: it begins with 68 69", offline.ErrFormat},
		{"text", []byte("hello"), "it begins with 68 65 6c 6c", offline.ErrFormat},
		{"version", version, "major version 9", nil},
		{"packed text", pack(t, []byte("hello")), "at octet 0 of the unpacked data: neither", offline.ErrFormat},
		{"no gzip", []byte{0x1F, 0x8B, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, "at octet 0: gzip", nil},
		{"pcapng of another byte order mark", append([]byte{0x0A, 0x0D, 0x0D, 0x0A}, make([]byte, 24)...), "yte order", nil},
	} {
		_, err := offline.NewReader(bytes.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

func TestReaderOfBrokenSource(t *testing.T) {
	broken := errors.New("disk on fire")
	if _, err := offline.NewReader(brokenReader{broken}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	pcap := classic(binary.LittleEndian, magicMicro, layers.LinkTypeEthernet, time.Microsecond, []byte("one"))
	r, err := offline.NewReader(io.MultiReader(bytes.NewReader(pcap[:30]), brokenReader{broken}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// Whatever a file holds, reading it ends, and every frame is what was read.
func FuzzScan(f *testing.F) {
	eth := marked(f, udpTo(53))
	f.Add(classic(binary.LittleEndian, magicMicro, layers.LinkTypeEthernet, time.Microsecond, eth))
	f.Add(classic(binary.BigEndian, magicNano, layers.LinkTypeRaw, time.Nanosecond, eth[14:]))
	f.Add(ng(f, eth, eth[14:]))
	f.Add(pack(f, ng(f, eth)))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := offline.NewReader(bytes.NewReader(file))
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
		packets := uint64(0)
		for _, c := range table.Conversations() {
			packets += c.Client().Packets + c.Server().Packets
		}
		if packets != seen {
			t.Errorf("%d packets in flows, %d seen", packets, seen)
		}
	})
}

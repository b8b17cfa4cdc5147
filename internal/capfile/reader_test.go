package capfile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

var start = time.Unix(1_700_000_000, 123_456_789).UTC()

func frame(n int) []byte { return bytes.Repeat([]byte{byte(n)}, 20+n) }

func info(n, iface int) gopacket.CaptureInfo {
	return gopacket.CaptureInfo{
		Timestamp: start.Add(time.Duration(n) * time.Second), InterfaceIndex: iface,
		CaptureLength: 20 + n, Length: 1000 + n,
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pcapFile is a file of n frames; ends are the bytes behind its header and each frame.
func pcapFile(t testing.TB, n int) (file []byte, ends []int) {
	var b bytes.Buffer
	w := pcapgo.NewWriterNanos(&b)
	must(t, w.WriteFileHeader(65535, layers.LinkTypeEthernet))
	for i := range n {
		ends = append(ends, b.Len())
		must(t, w.WritePacket(info(i, 0), frame(i)))
	}
	return b.Bytes(), append(ends, b.Len())
}

// pcapngFile is a section with two interfaces, n frames and statistics at its end.
func pcapngFile(t testing.TB, n int, names ...string) (file []byte, ends []int) {
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriterInterface(&b, pcapgo.NgInterface{Name: names[0], LinkType: layers.LinkTypeEthernet}, pcapgo.DefaultNgWriterOptions)
	must(t, err)
	for _, name := range names[1:] {
		_, err := w.AddInterface(pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeRaw})
		must(t, err)
	}
	mark := func() {
		must(t, w.Flush())
		ends = append(ends, b.Len())
	}
	for i := range n {
		mark()
		flags := pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlag(i % 3)}}
		must(t, w.WritePacketWithOptions(info(i, i%len(names)), frame(i), flags))
	}
	mark()
	must(t, w.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{PacketsReceived: 7}))
	mark()
	return b.Bytes(), ends
}

// read returns what is in a file, and the error at its end, nil for io.EOF.
func read(file []byte) (*Reader, []Frame, error) {
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, nil, err
	}
	var frames []Frame
	for {
		f, err := r.Next()
		if err == io.EOF {
			return r, frames, nil
		}
		if err != nil {
			return r, frames, err
		}
		f.Data = slices.Clone(f.Data)
		frames = append(frames, f)
	}
}

func TestPcap(t *testing.T) {
	file, _ := pcapFile(t, 5)
	_, frames, err := read(file)
	must(t, err)
	for i, f := range frames {
		if f.Number != i+1 || !f.Time.Equal(info(i, 0).Timestamp) || f.Length != 1000+i || !bytes.Equal(f.Data, frame(i)) ||
			f.Link != LinkEthernet || f.Direction != Unknown || f.Iface != 0 {
			t.Errorf("frame %d: %+v", i, f)
		}
	}
	if len(frames) != 5 {
		t.Errorf("%d frames, want 5", len(frames))
	}
}

// Interfaces of all sections have numbers and names of their own.
func TestPcapng(t *testing.T) {
	one, _ := pcapngFile(t, 6, "eth0", "tun0")
	two, _ := pcapngFile(t, 2, "eth9")
	r, frames, err := read(slices.Concat(one, two))
	must(t, err)
	if len(frames) != 8 {
		t.Fatalf("%d frames, want 8", len(frames))
	}
	for i, f := range frames[:6] {
		link := []LinkType{LinkEthernet, LinkRaw}[i%2]
		if !f.Time.Equal(info(i, 0).Timestamp) || f.Length != 1000+i || !bytes.Equal(f.Data, frame(i)) ||
			f.Link != link || f.Iface != i%2 || f.Direction != Direction(i%3) {
			t.Errorf("frame %d: %+v", i, f)
		}
	}
	for _, f := range frames[6:] {
		if f.Iface != 2 || f.Link != LinkEthernet {
			t.Errorf("frame %d of the second section: %+v", f.Number, f)
		}
	}
	for i, want := range []string{"eth0", "tun0", "eth9", ""} {
		if got := r.Interface(i); got != want {
			t.Errorf("interface %d is %q, want %q", i, got, want)
		}
	}
}

func TestGzip(t *testing.T) {
	file, ends := pcapFile(t, 5)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(file[:ends[3]+7])
	must(t, errors.Join(err, w.Close()))
	_, frames, err := read(packed.Bytes())
	var bad *Error
	if !errors.As(err, &bad) || !bad.Packed || bad.Offset != int64(ends[3]) || bad.Frame != 4 || len(frames) != 3 {
		t.Errorf("%d frames and error %v, want 3 and one at byte %d of the unpacked data", len(frames), err, ends[3])
	}
}

// A file that is cut anywhere gives the frames that are whole, and an error
// that tells where the next one began, unless the cut is between two.
func TestCutFiles(t *testing.T) {
	plain, plainEnds := pcapFile(t, 4)
	ng, ngEnds := pcapngFile(t, 4, "eth0")
	for name, file := range map[string]struct {
		data []byte
		ends []int
	}{"pcap": {plain, plainEnds}, "pcapng": {ng, ngEnds}} {
		for n := range file.data {
			_, frames, err := read(file.data[:n])
			whole := max(0, countUpTo(file.ends, n)-1)
			if len(frames) != min(4, whole) {
				t.Errorf("%s cut at %d: %d frames, want %d", name, n, len(frames), whole)
			}
			var bad *Error
			switch {
			case slices.Contains(file.ends, n):
				if err != nil {
					t.Errorf("%s cut at %d, between two blocks: %v", name, n, err)
				}
			case !errors.As(err, &bad):
				// Between the blocks that pcapng begins with is no error either.
				if name == "pcap" || n > file.ends[0] {
					t.Errorf("%s cut at %d: error %v tells no place", name, n, err)
				}
			case n >= 4 && !errors.Is(err, io.ErrUnexpectedEOF):
				t.Errorf("%s cut at %d: %v, want an unexpected end", name, n, err)
			case n < 4 && !errors.Is(err, ErrFormat):
				t.Errorf("%s cut at %d: %v, want no format", name, n, err)
			case bad.Offset > int64(n) || whole > 0 && bad.Offset != int64(file.ends[whole]):
				t.Errorf("%s cut at %d: error at byte %d, frames end at %v", name, n, bad.Offset, file.ends)
			}
		}
	}
}

// countUpTo is how many of the sorted ends are at most n.
func countUpTo(ends []int, n int) int {
	count := 0
	for _, e := range ends {
		if e <= n {
			count++
		}
	}
	return count
}

func FuzzReader(f *testing.F) {
	plain, _ := pcapFile(f, 3)
	one, _ := pcapngFile(f, 3, "eth0", "tun0")
	f.Add(plain)
	f.Add(one)
	f.Add(slices.Concat(one, one))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, frames, err := read(data)
		var bad *Error
		if err != nil && (!errors.As(err, &bad) || bad.Offset < 0 || !bad.Packed && bad.Offset > int64(len(data))) {
			t.Errorf("error without a place: %v", err)
		}
		for i, fr := range frames {
			if fr.Number != i+1 || fr.Length < len(fr.Data) {
				t.Errorf("frame %d: number %d, %d bytes of %d", i, fr.Number, len(fr.Data), fr.Length)
			}
		}
	})
}

// Package offline computes from a capture what the agent computes on the wire.
// In comes a pcap or pcapng file, out come its packets with PDM and, per flow,
// the delays and losses of package inband. waymark decode calls it.
package offline

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// ErrFormat says that a file is no capture.
var ErrFormat = errors.New("neither pcap nor pcapng")

// FileError is what is wrong with a file, and where.
type FileError struct {
	Frame  int   // number of the frame that could not be read, from 1; 0: the file header
	Offset int64 // octet of the file where its record begins, or in pcapng the first block behind the frame before
	Gzip   bool  // the offset is in what the file unpacks to
	Err    error
}

// Error implements error.
func (e *FileError) Error() string {
	place := fmt.Sprintf("at octet %d", e.Offset)
	if e.Gzip {
		place += " of the unpacked data"
	}
	if e.Frame > 0 {
		place = fmt.Sprintf("frame %d %s", e.Frame, place)
	}
	return fmt.Sprintf("%s: %v", place, e.Err)
}

// Unwrap returns the cause: [ErrFormat], io.ErrUnexpectedEOF where a file is cut
// short, or what the reader said.
func (e *FileError) Unwrap() error { return e.Err }

// Frame is one frame of a capture.
type Frame struct {
	Number int       // from 1, as other tools count
	Time   time.Time // zero where the file does not tell
	Link   layers.LinkType
	Data   []byte
}

// Reader reads the frames of a capture, packed with gzip or not.
type Reader struct {
	source interface {
		ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	}
	link   layers.LinkType // of all frames; in pcapng each has its own
	mixed  bool
	in     *counter
	buf    *bufio.Reader
	gzip   bool
	frames int
}

// counter counts the octets that were read through it.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// readBuffer must exceed bufio's default: only then do the readers of gopacket
// use this buffer and not one of their own, and the offset is exact.
const readBuffer = 1 << 16

// NewReader reads the file header. It fails with a [*FileError].
func NewReader(r io.Reader) (*Reader, error) {
	f := &Reader{}
	f.read(r)
	if magic, _ := f.buf.Peek(2); bytes.Equal(magic, []byte{0x1F, 0x8B}) {
		z, err := gzip.NewReader(f.buf)
		if err != nil {
			return nil, &FileError{Err: err}
		}
		f.gzip = true
		f.read(z)
	}
	if err := f.open(); err != nil {
		return nil, f.errorAt(0, err)
	}
	return f, nil
}

func (f *Reader) read(r io.Reader) {
	f.in = &counter{r: r}
	f.buf = bufio.NewReaderSize(f.in, readBuffer)
}

// Magic numbers of the formats, as they stand in a file.
var (
	magicNg   = []byte{0x0A, 0x0D, 0x0D, 0x0A}
	magicPcap = [][]byte{
		{0xA1, 0xB2, 0xC3, 0xD4}, {0xD4, 0xC3, 0xB2, 0xA1}, // microseconds
		{0xA1, 0xB2, 0x3C, 0x4D}, {0x4D, 0x3C, 0xB2, 0xA1}, // nanoseconds
	}
)

func (f *Reader) open() error {
	magic, err := f.buf.Peek(4)
	switch {
	case len(magic) == 0 && err == io.EOF:
		return fmt.Errorf("%w: it is empty", ErrFormat)
	case bytes.Equal(magic, magicNg):
		f.mixed = true
		f.source, err = pcapgo.NewNgReader(f.buf, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
		return cut(err)
	}
	for _, m := range magicPcap {
		if !bytes.Equal(magic, m) {
			continue
		}
		r, err := pcapgo.NewReader(f.buf)
		if err != nil {
			return cut(err)
		}
		f.source, f.link = r, r.LinkType()
		return nil
	}
	if err != nil && err != io.EOF {
		return err
	}
	return fmt.Errorf("%w: it begins with % x", ErrFormat, magic)
}

// cut makes of an end where none may be one that callers recognize.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Next returns the next frame, io.EOF at the end, or a [*FileError]. Its Data are
// the caller's.
func (f *Reader) Next() (Frame, error) {
	start := f.offset()
	data, info, err := f.source.ReadPacketData()
	// In pcapng other blocks may be before the end; there gopacket itself tells an
	// end between blocks from one within.
	if err == io.EOF && (f.mixed || f.offset() == start) {
		return Frame{}, io.EOF
	}
	f.frames++
	if err != nil {
		return Frame{}, f.errorAt(start, cut(err))
	}
	frame := Frame{Number: f.frames, Time: info.Timestamp, Link: f.link, Data: data[:len(data):len(data)]}
	if f.mixed && len(info.AncillaryData) > 0 {
		frame.Link, _ = info.AncillaryData[0].(layers.LinkType)
	}
	return frame, nil
}

func (f *Reader) offset() int64 { return f.in.n - int64(f.buf.Buffered()) }

func (f *Reader) errorAt(offset int64, err error) error {
	return &FileError{Frame: f.frames, Offset: offset, Gzip: f.gzip, Err: err}
}

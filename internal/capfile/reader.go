// Package capfile reads the frames of a pcap or pcapng file, packed with gzip or
// not. Input: the file. Output: frames with time, interface and direction, as far as
// the file has them, and errors that name the frame and the byte. Callers: offline
// readers, such as capture.ReadFile.
package capfile

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

// Error is what is wrong with a file, and where.
type Error struct {
	Frame  int   // number of the frame that could not be read, from 1; 0: the file's header
	Offset int64 // byte of the file behind the frame before
	Packed bool  // the offset is in what the file unpacks to
	Err    error // ErrFormat, io.ErrUnexpectedEOF where the file is cut short, or another
}

// Error implements error.
func (e *Error) Error() string {
	where := fmt.Sprintf("byte %d", e.Offset)
	if e.Packed {
		where += " of the unpacked data"
	}
	if e.Frame > 0 {
		where = fmt.Sprintf("frame %d at %s", e.Frame, where)
	}
	return fmt.Sprintf("%s: %v", where, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Direction is the way of a frame at its interface.
type Direction uint8

// Most files don't tell.
const (
	Unknown Direction = iota
	Inbound
	Outbound
)

// Frame is one frame of a capture.
type Frame struct {
	Number    int       // from 1, as other tools count
	Time      time.Time // zero where the file does not tell
	Link      layers.LinkType
	Data      []byte // captured bytes; valid until the next call
	Length    int    // bytes of the frame, at least those captured
	Iface     int    // number of the interface in the file, see Interface
	Direction Direction
}

// Reader reads one file. Not for several goroutines.
type Reader struct {
	in     *counter
	buf    *bufio.Reader
	packed bool
	frames int

	plain *pcapgo.Reader   // one of the two
	ng    *pcapgo.NgReader //

	start   int64    // offset at the last call of Next
	names   []string // of pcapng interfaces, of all sections
	section int      // number of the current section's first interface
}

// bufferSize is more than the readers of gopacket want, or they would buffer
// once more and the offset were not known.
const bufferSize = 64 << 10

// maxIface bounds the interfaces of a file.
const maxIface = 1 << 16

// NewReader reads a file's header. Errors are of type *Error.
func NewReader(r io.Reader) (*Reader, error) {
	f := &Reader{}
	f.readFrom(r)
	if magic, _ := f.buf.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(f.buf)
		if err != nil {
			return nil, f.At(err)
		}
		f.packed = true
		f.readFrom(unpacked)
	}
	if err := f.header(); err != nil {
		return nil, f.At(err)
	}
	return f, nil
}

func (f *Reader) readFrom(r io.Reader) {
	f.in = &counter{r: r}
	f.buf = bufio.NewReaderSize(f.in, bufferSize)
}

// counter counts what is read through it.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// header finds out the format by the first four bytes.
func (f *Reader) header() error {
	magic, err := f.buf.Peek(4)
	if err != nil && err != io.EOF {
		return err
	}
	switch string(magic) {
	case "\n\r\r\n":
		f.ng, err = pcapgo.NewNgReader(f.buf, pcapgo.NgReaderOptions{
			WantMixedLinkType: true, SkipUnknownVersion: true, SectionEndCallback: f.endSection,
		})
	case "\xa1\xb2\xc3\xd4", "\xd4\xc3\xb2\xa1", "\xa1\xb2\x3c\x4d", "\x4d\x3c\xb2\xa1":
		f.plain, err = pcapgo.NewReader(f.buf)
	case "":
		return fmt.Errorf("%w: it is empty", ErrFormat)
	default:
		return fmt.Errorf("%w: it begins with % x", ErrFormat, magic)
	}
	return cut(err)
}

// cut makes of an end where none may be one that callers recognize.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// endSection keeps the interfaces of a section: the next one counts from 0 again.
func (f *Reader) endSection(ifaces []pcapgo.NgInterface, _ pcapgo.NgSectionInfo) {
	for i, iface := range ifaces {
		f.name(f.section+i, iface.Name)
	}
	f.section += len(ifaces)
}

func (f *Reader) name(i int, name string) {
	for len(f.names) <= i {
		f.names = append(f.names, "")
	}
	f.names[i] = name
}

// Interface is the name of an interface whose frames have been read; empty
// where the file has none.
func (f *Reader) Interface(i int) string {
	if i < len(f.names) {
		return f.names[i]
	}
	return ""
}

// Next returns the next frame, io.EOF at the end, or an *Error.
func (f *Reader) Next() (Frame, error) {
	f.start = f.offset()
	frame, err := f.next()
	// The pcapng reader tells an end between blocks, of any kind, from one inside.
	if err == io.EOF && (f.ng != nil || f.offset() == f.start) {
		return Frame{}, io.EOF
	}
	f.frames++
	if err != nil {
		return Frame{}, f.At(cut(err))
	}
	frame.Number = f.frames
	return frame, nil
}

func (f *Reader) next() (Frame, error) {
	if f.plain != nil {
		data, info, err := f.plain.ZeroCopyReadPacketData()
		return Frame{Time: info.Timestamp, Link: f.plain.LinkType(), Data: data, Length: info.Length}, err
	}
	data, info, opts, err := f.ng.ZeroCopyReadPacketDataWithOptions()
	if err != nil {
		return Frame{}, err
	}
	frame := Frame{Time: info.Timestamp, Data: data, Length: max(info.Length, len(data))}
	frame.Link, _ = info.AncillaryData[0].(layers.LinkType)
	frame.Iface, err = f.interfaceOf(info)
	if opts.Flags != nil {
		switch opts.Flags.Direction {
		case pcapgo.NgEpbFlagDirectionInbound:
			frame.Direction = Inbound
		case pcapgo.NgEpbFlagDirectionOutbound:
			frame.Direction = Outbound
		}
	}
	return frame, err
}

// interfaceOf numbers interfaces over all sections.
func (f *Reader) interfaceOf(info gopacket.CaptureInfo) (int, error) {
	i := f.section + info.InterfaceIndex
	if i >= maxIface {
		return 0, fmt.Errorf("interface %d: a file may have %d", i, maxIface)
	}
	if i >= len(f.names) {
		iface, err := f.ng.Interface(info.InterfaceIndex)
		if err != nil {
			return 0, err
		}
		f.name(i, iface.Name)
	}
	return i, nil
}

func (f *Reader) offset() int64 { return f.in.n - int64(f.buf.Buffered()) }

// At is an error about the frame read last.
func (f *Reader) At(err error) error {
	return &Error{Frame: f.frames, Offset: f.start, Packed: f.packed, Err: err}
}

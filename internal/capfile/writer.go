package capfile

import (
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"time"
)

// Writer writes pcapng. Each call ends with whole blocks in one write, so that others can read the file while it grows.
type Writer struct {
	out    io.Writer
	b      []byte
	ifaces uint32
}

// Interface is where frames of a file were seen.
type Interface struct {
	Name   string
	Filter string // which of its packets are in the file; empty: all
	Link   LinkType
	Snap   uint32 // bytes that are kept of a frame
}

// Verdict is what an eBPF program decided about a packet.
type Verdict struct {
	Kind  VerdictKind
	Value uint64 // the program's return value
}

// VerdictKind is the kind of a program; pcapng gives the numbers.
type VerdictKind uint8

// Programs at tc and at XDP.
const (
	VerdictTC  VerdictKind = 1
	VerdictXDP VerdictKind = 2
)

// Packet is a frame to write, and what is known of it.
type Packet struct {
	Frame    // Number is its id; Link is that of its interface
	Comments []string
	Queue    uint32
	Lost     uint64 // packets between the one before and this
	Verdict  Verdict
}

// Statistics are those of an interface in a capture.
type Statistics struct {
	From, To       time.Time
	Received, Lost uint64
}

// Options of blocks, besides those that are read.
const (
	optComment     = 1
	optOS          = 3 // of a section
	optApplication = 4
	optFilter      = 11
	optLost        = 4 // of a packet
	optID          = 5
	optQueue       = 6
	optVerdict     = 7
	optFrom        = 2 // of statistics
	optTo          = 3
	optReceived    = 4
	optDropped     = 5
)

// NewWriter begins a file.
func NewWriter(out io.Writer, application string) (*Writer, error) {
	w := &Writer{out: out}
	return w, w.block(blockSection, func() {
		w.u32(byteOrderMagic)
		w.u32(1)              // version 1.0
		w.u64(math.MaxUint64) // of any length
		w.option(optOS, []byte(runtime.GOOS))
		w.option(optApplication, []byte(application))
	})
}

// Add makes an interface of the file, and returns its number.
func (w *Writer) Add(i Interface) (int, error) {
	n := w.ifaces
	w.ifaces++
	return int(n), w.block(blockInterface, func() {
		w.u32(uint32(i.Link))
		w.u32(i.Snap)
		w.option(optName, []byte(i.Name))
		if i.Filter != "" {
			w.option(optFilter, append([]byte{0}, i.Filter...)) // 0: a text
		}
		w.option(optUnit, []byte{9}) // nanoseconds
	})
}

// Write adds a packet of one of the interfaces.
func (w *Writer) Write(p *Packet) error {
	return w.block(blockEnhanced, func() {
		w.u32(uint32(p.Iface))
		w.time(p.Time)
		w.u32(uint32(len(p.Data)))
		w.u32(uint32(p.Length))
		w.padded(p.Data)
		for _, c := range p.Comments {
			w.option(optComment, []byte(c))
		}
		w.option(optFlags, binary.LittleEndian.AppendUint32(nil, uint32(p.Direction)))
		w.option(optLost, binary.LittleEndian.AppendUint64(nil, p.Lost))
		w.option(optID, binary.LittleEndian.AppendUint64(nil, uint64(p.Number)))
		w.option(optQueue, binary.LittleEndian.AppendUint32(nil, p.Queue))
		w.option(optVerdict, binary.LittleEndian.AppendUint64([]byte{byte(p.Verdict.Kind)}, p.Verdict.Value))
	})
}

// End adds what was captured at an interface.
func (w *Writer) End(iface int, s Statistics) error {
	return w.block(blockStatistics, func() {
		w.u32(uint32(iface))
		w.time(s.To)
		w.option(optFrom, appendTime(nil, s.From))
		w.option(optTo, appendTime(nil, s.To))
		w.option(optReceived, binary.LittleEndian.AppendUint64(nil, s.Received))
		w.option(optDropped, binary.LittleEndian.AppendUint64(nil, s.Lost))
	})
}

// block writes a block with its frame; body appends what is in it.
func (w *Writer) block(kind uint32, body func()) error {
	w.b = w.b[:0]
	w.u32(kind)
	w.u32(0)
	body()
	w.u32(optEnd)
	length := uint32(len(w.b) + 4)
	w.u32(length)
	binary.LittleEndian.PutUint32(w.b[4:], length)
	_, err := w.out.Write(w.b)
	return err
}

func (w *Writer) u32(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *Writer) u64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }

func (w *Writer) time(t time.Time) { w.b = appendTime(w.b, t) }

// appendTime appends nanoseconds, the upper half first.
func appendTime(b []byte, t time.Time) []byte {
	ns := uint64(t.UnixNano())
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(ns>>32)), uint32(ns))
}

func (w *Writer) padded(b []byte) {
	w.b = append(w.b, b...)
	for range -len(b) & 3 {
		w.b = append(w.b, 0)
	}
}

// option appends an option; one that is too long for its length is cut.
func (w *Writer) option(code uint16, value []byte) {
	value = value[:min(len(value), math.MaxUint16)]
	w.b = binary.LittleEndian.AppendUint16(w.b, code)
	w.b = binary.LittleEndian.AppendUint16(w.b, uint16(len(value)))
	w.padded(value)
}

package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// codecVersion is the first byte of an encoded interval.
const codecVersion = 4

// Earlier versions have rows one behind the other; the first one does not name the interface on the other side.
const (
	versionWithoutOther = 2
	versionByRows       = 3
)

// typicalRow is what a row takes, of which an interval has many: one allocation, no copies.
const typicalRow = 64

// Encoder writes intervals as bytes. Wirings are written where they change, the names of fields once.
type Encoder struct {
	wiring *flow.Wiring
	named  bool
	block  *Block
}

// Append adds an interval to b.
func (c *Encoder) Append(b []byte, e *Ended) []byte {
	b = slices.Grow(b, 1024+len(e.iv.reported)+e.Len()*typicalRow)
	b = c.appendInterval(append(b, codecVersion), e)
	if c.block == nil {
		c.block = newBlock()
	}
	_ = e.blocks(c.block, func() error {
		b = c.block.append(b)
		return nil
	})
	return append(b, make([]byte, slack)...)
}

// appendInterval writes all but the rows.
func (c *Encoder) appendInterval(b []byte, e *Ended) []byte {
	iv := e.iv
	b = c.appendHead(b, iv)
	b = binary.AppendUvarint(b, uint64(len(iv.links)))
	for _, l := range iv.links {
		b = appendString(appendString(b, l.iface), l.netns)
		b = binary.AppendUvarint(b, uint64(l.ifindex))
	}
	b = binary.AppendUvarint(b, uint64(len(iv.drops)))
	for _, d := range iv.drops {
		b = appendString(binary.AppendUvarint(append(b, byte(d.Verdict)), uint64(d.Rule)), d.Text)
	}
	b = binary.AppendUvarint(b, uint64(len(iv.reported)))
	b = append(b, iv.reported...)
	return binary.AppendUvarint(b, uint64(e.Len()))
}

// appendHead writes what an interval is, and what changed since the one before it.
func (c *Encoder) appendHead(b []byte, iv *interval) []byte {
	names := coded
	if c.named {
		names = nil
	}
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, f := range names {
		b = appendString(b, f.Name)
	}
	c.named = true
	b = binary.AppendUvarint(b, iv.sequence)
	b = binary.AppendVarint(b, flow.Nanos(iv.from))
	b = binary.AppendVarint(b, flow.Nanos(iv.to))
	b = binary.AppendUvarint(b, iv.summed)
	changed := iv.wiring != c.wiring
	b = binary.AppendUvarint(b, boolean(changed))
	if c.wiring = iv.wiring; changed {
		b = AppendWiring(b, iv.wiring)
	}
	return b
}

// Decoder is the inverse of Encoder.
type Decoder struct {
	wiring *flow.Wiring
	fields []*flow.Field // in the order of their numbers
	block  *Block
}

// Decode reads an interval. Bytes that no Encoder wrote give an error, never a crash.
func (c *Decoder) Decode(b []byte) (e Ended, err error) {
	if isByRows(b) {
		return c.decodeRows(b)
	}
	err = c.blocks(b, func(iv *interval, rows int) {
		iv.reported = slices.Clone(iv.reported)
		e = Ended{iv: iv, repeated: make([]uint64, 0, rows)}
		iv.rows.grow(rows)
	}, func(b *Block) error {
		b.write(&e.iv.rows)
		list, _ := b.Numbers(ColumnRepeated)
		e.repeated = append(e.repeated, list...)
		return nil
	})
	return e, err
}

// Blocks reads an interval without keeping it: begin is called with what is known without its records, then each with
// all of these.
func (c *Decoder) Blocks(b []byte, begin func(Head), each func(*Block) error) (err error) {
	if isByRows(b) {
		defer endsEarly(&err)
		e, err := c.decodeRows(b)
		if err != nil {
			return err
		}
		begin(e.Head())
		return e.Blocks(each)
	}
	return c.blocks(b, func(iv *interval, rows int) {
		begin(Head{iv.sequence, iv.from, iv.to, iv.summed, rows, iv.wiring})
	}, each)
}

func (c *Decoder) blocks(b []byte, begin func(iv *interval, rows int), each func(*Block) error) (err error) {
	defer endsEarly(&err)
	if version := b[0]; version != codecVersion {
		return fmt.Errorf("version %d of the log is not known: read it with the Waymark that wrote it", version)
	}
	r := reader(b[1:])
	iv, err := c.head(&r)
	if err != nil {
		return err
	}
	columns := columnsOf(c.fields)
	rows := r.uvarint()
	if rows > BlockRows*uint64(len(r)/blockBytes(len(columns))) {
		panic("too many")
	}
	n := int(rows)
	begin(iv, n)
	if c.block == nil {
		c.block = newBlock()
	}
	for ; n > 0; n -= BlockRows {
		if err := r.block(c.block, iv, min(n, BlockRows), columns); err != nil {
			return err
		}
		if err := each(c.block); err != nil {
			return err
		}
	}
	return nil
}

// endsEarly has reading beyond the end be an error.
func endsEarly(err *error) {
	if recover() != nil {
		*err = errors.New("the interval ends too early")
	}
}

var errNotThere = errors.New("a record names an interface or a rule that is not there")

// head reads all of an interval but its rows; what options reported is in the memory of r.
func (c *Decoder) head(r *reader) (*interval, error) {
	if n := r.count(1); n > 0 {
		c.fields = nil
		for range n {
			name := r.text()
			i := slices.IndexFunc(coded, func(f *flow.Field) bool { return f.Name == name })
			if i < 0 {
				return nil, fmt.Errorf("the log has a field %q that is not known: read it with the Waymark that wrote it", name)
			}
			c.fields = append(c.fields, coded[i])
		}
	}
	iv := &interval{sequence: r.uvarint(), from: flow.FromNanos(r.varint()), to: flow.FromNanos(r.varint()), summed: r.uvarint()}
	if r.uvarint() != 0 {
		c.wiring = r.wiring()
	}
	iv.wiring = c.wiring
	for range r.count(3) {
		iv.links = append(iv.links, link{r.text(), r.text(), uint32(r.uvarint())})
	}
	for range r.count(3) {
		iv.drops = append(iv.drops, &flow.Drop{Verdict: flow.Verdict(r.uvarint()), Rule: uint32(r.uvarint()), Text: r.text()})
	}
	iv.reported = packed(r.bytes())
	return iv, nil
}

// AppendWiring writes how interfaces hang together; nil: not known.
func AppendWiring(b []byte, w *flow.Wiring) []byte {
	b = binary.AppendUvarint(b, boolean(w != nil))
	if w == nil {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(w.Peers)))
	for a, z := range w.Peers {
		b = appendPort(appendPort(b, a), z)
	}
	b = binary.AppendUvarint(b, uint64(len(w.Uppers)))
	for p, uppers := range w.Uppers {
		b = binary.AppendUvarint(appendPort(b, p), uint64(len(uppers)))
		for _, u := range uppers {
			b = appendPort(b, u)
		}
	}
	return b
}

// DecodeWiring is the inverse of AppendWiring.
func DecodeWiring(b []byte) (w *flow.Wiring, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the wiring ends too early")
		}
	}()
	r := reader(b)
	return r.wiring(), nil
}

func (r *reader) wiring() *flow.Wiring {
	if r.uvarint() == 0 {
		return nil
	}
	w := &flow.Wiring{Peers: map[flow.Port]flow.Port{}, Uppers: map[flow.Port][]flow.Port{}}
	for range r.count(4) {
		a := r.port()
		w.Peers[a] = r.port()
	}
	for range r.count(3) {
		p := r.port()
		for range r.count(2) {
			w.Uppers[p] = append(w.Uppers[p], r.port())
		}
	}
	return w
}

func appendPort(b []byte, p flow.Port) []byte {
	return binary.AppendUvarint(appendString(b, p.Netns), uint64(p.IfIndex))
}

func (r *reader) port() flow.Port { return flow.Port{Netns: r.text(), IfIndex: uint32(r.uvarint())} }

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// count is how many elements of at least so many bytes follow; more than there can be are an
// error, which panics as everything that reads too far does.
func (r *reader) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(*r)/least) {
		panic("too many")
	}
	return int(n)
}

func (r *reader) bytes() []byte {
	n := r.count(1)
	b := (*r)[:n]
	*r = (*r)[n:]
	return b
}

func (r *reader) text() string { return string(r.bytes()) }

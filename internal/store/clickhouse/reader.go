package clickhouse

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store/disk"
)

// reader reads rows of ClickHouse's RowBinary. After an error, all values are zero.
type reader struct {
	from   *bufio.Reader
	err    error
	buffer []byte
	list   []uint64
}

// more reports whether there is another row.
func (r *reader) more() bool {
	if r.err != nil {
		return false
	}
	_, err := r.from.Peek(1)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return err == nil
}

func (r *reader) fill(n int) []byte {
	if cap(r.buffer) < n {
		r.buffer = make([]byte, n)
	}
	b := r.buffer[:n]
	if r.err == nil {
		if _, r.err = io.ReadFull(r.from, b); r.err == io.EOF {
			r.err = io.ErrUnexpectedEOF
		}
	}
	if r.err != nil {
		clear(b)
	}
	return b
}

// word is a number of 64 bits.
func (r *reader) word() uint64 { return binary.LittleEndian.Uint64(r.fill(8)) }

// is reports whether a value that may be missing is there.
func (r *reader) is() bool { return r.fill(1)[0] == 0 && r.err == nil }

// longest is how long a text or a list may be.
const longest = 1 << 20

func (r *reader) length() int {
	n, err := binary.ReadUvarint(r.from)
	if r.err == nil {
		r.err = err
	}
	if r.err == nil && n > longest {
		r.err = fmt.Errorf("a value of %d bytes", n)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// bytes is a text, valid until the next value.
func (r *reader) bytes() []byte { return r.fill(r.length()) }

// words is a list of numbers, likewise.
func (r *reader) words() []uint64 {
	r.list = r.list[:0]
	for range r.length() {
		r.list = append(r.list, r.word())
	}
	return r.list
}

// value sets a field of a record to the next value. A number that is missing is not set.
func (r *reader) value(f *flow.Field, to *flow.Record) error {
	switch f.Kind {
	case flow.Text:
		return disk.Put(f, to, 0, r.bytes())
	case flow.Pairs:
		if pairs := r.words(); len(pairs) > 0 && r.err == nil {
			return f.PutPairs(to, pairs)
		}
		return nil
	}
	switch is := r.is(); {
	case !is:
		return nil
	case f.Kind == flow.Address:
		return disk.Put(f, to, 0, r.fill(16))
	}
	n := r.word()
	if f.Kind == flow.Name {
		if n >= uint64(len(f.Values)) {
			return fmt.Errorf("%s has no value %d", f.Name, n)
		}
		return disk.Put(f, to, 0, []byte(f.Values[n]))
	}
	return disk.Put(f, to, n, nil)
}

// selected is what a statement selects of a field, so that value reads it.
func selected(f *flow.Field, expression string) string {
	switch f.Kind {
	case flow.Text:
		return "toString(" + expression + ")"
	case flow.Pairs:
		return expression
	case flow.Address:
		return "toNullable(" + expression + ")"
	case flow.Time:
		return "toNullable(toUnixTimestamp64Nano(" + expression + "))"
	case flow.Signed:
		return "toNullable(toInt64(" + expression + "))"
	}
	return "toNullable(toUInt64(" + expression + "))"
}

// address is an address of 16 bytes as text.
func address(b []byte) string { return netip.AddrFrom16([16]byte(b)).String() }

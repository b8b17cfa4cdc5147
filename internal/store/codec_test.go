package store

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
)

// drawEnded is an interval of some blocks: of few records, some of which repeat often, as columns with one value do.
func drawEnded(t *rapid.T) Ended {
	b := NewBuilder(Head{Sequence: rapid.Uint64().Draw(t, "sequence"), From: at(0), To: at(10), Summed: rapid.Uint64().Draw(t, "summed")})
	for range rapid.IntRange(0, 3).Draw(t, "kinds") {
		r := flowtest.Record(t)
		for range rapid.SampledFrom([]int{1, 2, 3, BlockRows - 1, BlockRows}).Draw(t, "times") {
			b.Add(&r, r.Packets/3)
		}
	}
	return b.End()
}

// records are those of an interval.
func (e *Ended) records() (list []flow.Record) {
	for i := range e.Len() {
		list = append(list, e.record(i))
	}
	return list
}

func (e *Ended) record(i int) (r flow.Record) {
	e.iv.rows.at(i).record(e.iv, &r, &reports{})
	return r
}

func sameInterval(t *rapid.T, want, got *Ended) {
	t.Helper()
	if want.Len() != got.Len() {
		t.Fatalf("%d rows, want %d", got.Len(), want.Len())
	}
	for i := range want.Len() {
		a, b := want.record(i), got.record(i)
		// That is soon known: package reflect sees only what records point to, as the race detector makes it slow.
		x, y := a, b
		x.Drop, x.PDM, x.IOAM, y.Drop, y.PDM, y.IOAM = nil, nil, nil, nil, nil, nil
		if x == y && reflect.DeepEqual(a.Drop, b.Drop) && reflect.DeepEqual(a.PDM, b.PDM) && reflect.DeepEqual(a.IOAM, b.IOAM) {
			continue
		}
		if diff := gocmp.Diff(a, b, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("record %d (-want +got):\n%s", i, diff)
		}
	}
	if !slices.Equal(want.repeated, got.repeated) {
		t.Fatalf("repeated: %v, want %v", got.repeated, want.repeated)
	}
	a, b := want.Head(), got.Head()
	if !a.From.Equal(b.From) || !a.To.Equal(b.To) || a.Sequence != b.Sequence || a.Summed != b.Summed || a.Rows != b.Rows {
		t.Fatalf("%+v, want %+v", b, a)
	}
}

// What the log has of intervals is what they were, whichever version wrote it, one after the other.
func TestCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var encoder Encoder
		var decoder Decoder
		for range 2 {
			want := drawEnded(t)
			got, err := decoder.Decode(encoder.Append(nil, &want))
			if err != nil {
				t.Fatal(err)
			}
			sameInterval(t, &want, &got)
			for _, version := range []byte{versionByRows, versionWithoutOther} {
				b := appendRows(nil, version, &want)
				var earlier Decoder
				if got, err = earlier.Decode(b); err != nil {
					t.Fatal(err)
				}
				if version == versionWithoutOther {
					for i := range want.Len() {
						want.iv.rows.at(i).other = 0
					}
				}
				sameInterval(t, &want, &got)
				verifyBlocks(t, &want, b)
			}
		}
	})
}

// Records of blocks say what records of rows do of all that is no column, and numbers of columns are those of records.
func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEnded(t)
		var encoder Encoder
		verifyBlocks(t, &e, encoder.Append(nil, &e))
	})
}

func verifyBlocks(t *rapid.T, e *Ended, encoded []byte) {
	t.Helper()
	want, n := e.records(), 0
	var decoder Decoder
	err := decoder.Blocks(encoded, func(h Head) {
		if h.Rows != len(want) {
			t.Fatalf("%d rows, want %d", h.Rows, len(want))
		}
	}, func(b *Block) error {
		for i, got := range b.Records() {
			w := &want[n]
			for at := range flow.Fields {
				verifyField(t, &flow.Fields[at], b, i, w, &got)
			}
			if list, _ := b.Numbers(ColumnRepeated); list[i] != e.repeated[n] {
				t.Fatalf("repeated of row %d: %d, want %d", n, list[i], e.repeated[n])
			}
			n++
		}
		return nil
	})
	if err != nil || n != len(want) {
		t.Fatalf("%d rows of %d: %v", n, len(want), err)
	}
}

// verifyField compares a field of a row of a block with that of the record.
func verifyField(t *rapid.T, f *flow.Field, b *Block, i int, want, got *flow.Record) {
	if f.Missing != nil && f.Missing(got) != f.Missing(want) {
		t.Fatalf("%s is missing: %t, want %t", f.Name, f.Missing(got), f.Missing(want))
	}
	if f.Missing != nil && f.Missing(want) {
		return
	}
	switch column := Column(f); {
	case column >= 0:
		number := [1]uint64{}
		f.Numbers([]flow.Record{*want}, number[:])
		list, same := b.Numbers(column)
		if list[i] != number[0] || same && list[0] != list[i] {
			t.Fatalf("%s of row %d is %d, want %d", f.Name, i, list[i], number[0])
		}
	case f.Addr != nil:
		high, low := b.Addresses(f)
		a := f.Addr(want).As16()
		if high[i] != binary.BigEndian.Uint64(a[:]) || low[i] != binary.BigEndian.Uint64(a[8:]) {
			t.Fatalf("%s of row %d is %x %x, want %x", f.Name, i, high[i], low[i], a)
		}
	case f.Append != nil:
		var o flow.Origin
		if a, b := string(f.Append(nil, &o, want)), string(f.Append(nil, &o, got)); a != b {
			t.Fatalf("%s of row %d is %q, want %q", f.Name, i, b, a)
		}
	case !slices.Equal(f.Buckets(want), f.Buckets(got)):
		t.Fatalf("%s of row %d differs", f.Name, i)
	}
}

// appendRows writes an interval as an earlier version of the log has it.
func appendRows(b []byte, version byte, e *Ended) []byte {
	iv := e.iv
	var c Encoder
	b = c.appendInterval(append(b, version), e)
	var r flow.Record
	for i, n := range e.repeated {
		w := iv.rows.at(i)
		w.own(&r)
		numbers := []uint32{w.link, w.reported, w.drop, w.other}
		if version == versionWithoutOther {
			numbers = numbers[:3]
		}
		for _, n := range numbers {
			b = binary.AppendUvarint(b, uint64(n))
		}
		b = append(append(b, w.src[:]...), w.dst[:]...)
		from := flow.Nanos(iv.from)
		for _, f := range coded {
			if f.Nanos == nil {
				b = binary.AppendUvarint(b, f.Uint(&r))
				continue
			}
			b = binary.AppendVarint(b, f.Nanos(&r)-from)
			from = f.Nanos(&r)
		}
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// An interval that says to have more rows than its bytes can have is refused before anything is taken of it.
func TestTooManyRows(t *testing.T) {
	e := NewBuilder(Head{Sequence: 5, From: at(0), To: at(10)}).End()
	var encoder Encoder
	b := encoder.appendInterval([]byte{codecVersion}, &e)
	b = b[:len(b)-1] // without the number of rows
	for _, rows := range []uint64{BlockRows*2 + 1, 1 << 40, math.MaxInt64 - BlockRows + 2, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		blocks := make([]byte, 2*blockBytes(len(places))) // what two may take
		var decoder Decoder
		err := decoder.Blocks(append(binary.AppendUvarint(slices.Clip(b), rows), blocks...), func(h Head) { t.Errorf("%d rows: begun with %d", rows, h.Rows) }, nil)
		if err == nil {
			t.Errorf("%d rows: no error", rows)
		}
	}
}

// FuzzDecode: bytes that no Encoder wrote give an error, or an interval whose records can be read.
func FuzzDecode(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	b := NewBuilder(Head{Sequence: 5, From: at(0), To: at(10)})
	for range BlockRows + 9 {
		r := record(byte(random.IntN(4)), 1, random.Uint64N(1000))
		r.RTT.Responder = time.Duration(random.IntN(3))
		b.Add(&r, 0)
	}
	e := b.End()
	var encoder Encoder
	f.Add(encoder.Append(nil, &e))
	f.Add(appendRows(nil, versionByRows, &e))
	f.Add(appendRows(nil, versionWithoutOther, &e))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var decoder Decoder
		if e, err := decoder.Decode(b); err == nil && len(e.iv.reported) == 0 {
			_ = e.records()
		}
		_ = decoder.Blocks(b, func(Head) {}, func(b *Block) error {
			_ = b.Records()
			return nil
		})
	})
}

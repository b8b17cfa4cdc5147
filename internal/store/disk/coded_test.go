package disk

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// manyRecords are those of more than a row group, with columns of one value, of few and of many, that change their values
// from page to page and between row groups.
func manyRecords(n int) []flow.Record {
	random := rand.New(rand.NewPCG(3, 4))
	list := make([]flow.Record, n)
	for i := range list {
		r := &list[i]
		*r = flow.Record{
			Iface: [...]string{"eth0", "eth1", "a"}[i>>12%3], Netns: "blue", IfIndex: uint32(i >> 14), Family: 4, Proto: 6,
			Direction: flow.Direction(random.IntN(2)), Unattributed: i < 20_000 || random.IntN(50) == 0,
			VLAN: uint16(5 - i>>15), FlowLabel: uint32(random.IntN(1 << 20)), Tunnel: flow.Tunnel(random.IntN(2)),
			Counters: flow.Counters{Packets: 1 + random.Uint64N(1<<40), Bytes: 40, WireBytes: random.Uint64()},
			First:    time.Unix(int64(i), 0), Last: time.Unix(int64(i)+9, 5),
		}
		if !r.Unattributed {
			r.Src = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(random.IntN(256)), byte(random.IntN(256))})
			r.Dst = netip.AddrFrom4([4]byte{1, byte(random.IntN(3)), 2, 3})
			if i%3 == 0 {
				r.Family = 6
				r.Src = netip.AddrFrom16([16]byte{0xfd, byte(i >> 13), 15: byte(i)})
				r.Dst = netip.AddrFrom16([16]byte{0x20, 1, 8: byte(random.IntN(256)), 15: byte(random.IntN(256))})
			}
			r.SrcPort, r.DstPort = uint16(random.IntN(1<<16)), [...]uint16{443, 53, 0}[random.IntN(3)]
		}
	}
	return list
}

// variedColumns are those with several values, some with one, and some with none in these records.
var variedColumns = []string{
	columnInterval, columnRepeated, columnIfIndex, "host", "sampling", "iface", "direction", "family", "src", "dst", "sport", "vlan", "flow_label", "tunnel", "unattributed",
	"packets", "bytes", "first", "icmp_type", "rtt.responder_ns",
}

// writtenTo is a file of records.
func writtenTo(t *testing.T, list []flow.Record) (path string, w *writer) {
	t.Helper()
	path = segmentName(t.TempDir(), 70_000, 70_000, false)
	w, err := newWriter(path, flow.Origin{Host: "alpha", Sampling: 7}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := store.NewBuilder(store.Head{Sequence: 70_000, From: time.Unix(0, 0), To: time.Unix(10, 0)})
	for i := range list {
		b.Add(&list[i], uint64(i%2)*list[i].Packets)
	}
	e := b.End()
	if err := errors.Join(w.add(&e), w.end(0)); err != nil {
		t.Fatal(err)
	}
	return path, w
}

// Addresses are those of the rows, whether few of them are asked for, many or all.
func TestAddressesOfRows(t *testing.T) {
	list := manyRecords(groupRows + groupRows/8)
	path, _ := writtenTo(t, list)
	seg, err := openSegment(path)
	if err != nil {
		t.Fatal(err)
	}
	file, checked, err := openParquet(path)
	if err != nil {
		t.Fatal(err)
	}
	defer checked.Close()
	var m memory
	random := rand.New(rand.NewPCG(5, 6))
	for g := range seg.groups {
		for _, name := range []string{"src", "dst"} {
			c := columnNamed(name)
			for _, every := range []int{1, 7, 1000, 40_000} {
				b := newBlock(file, seg, g, &m)
				var at []int32
				for row := random.IntN(every); row < b.rows; row += 1 + random.IntN(every) {
					at = append(at, int32(row))
				}
				v, err := b.read(c, at)
				if err != nil {
					t.Fatal(err)
				}
				if len(at) < b.rows/fewRows {
					b.wanted = at
				}
				whole, err := b.whole(c)
				if err != nil {
					t.Fatal(err)
				}
				for i, row := range at {
					r := &list[b.first+int(row)]
					_, got, is := v.cell(i)
					_, again, isAgain := whole.cell(int(row))
					want := c.bytes(&entry{Record: r}, nil)
					if c.field.Missing(r) {
						want = nil
					}
					if is != (want != nil) || isAgain != is || !bytes.Equal(got, want) || !bytes.Equal(again, want) {
						t.Fatalf("%s of row %d is %x and %x, not %x", name, row, got, again, want)
					}
				}
				b.close()
			}
		}
	}
}

// What is handed to the library as lists is in the file, in all pages and row groups, and the bounds of pages and row
// groups are those of the values.
func TestRowGroups(t *testing.T) {
	list := manyRecords(groupRows + groupRows/8)
	path, w := writtenTo(t, list)
	file, checked, err := openParquet(path)
	if err != nil {
		t.Fatal(err)
	}
	defer checked.Close()
	if n := len(file.RowGroups()); n != 2 {
		t.Fatalf("%d row groups", n)
	}
	names := file.Schema().Columns()
	row := 0
	for _, group := range file.RowGroups() {
		for i, chunk := range group.ColumnChunks() {
			if !slices.Contains(variedColumns, names[i][0]) {
				continue
			}
			read := verifyBounds(t, names[i][0], chunk.(*parquet.FileColumnChunk))
			c := columnNamedOrExtra(names[i][0])
			for n, v := range read {
				r := &list[row+n]
				want := parquet.Value{}
				switch {
				case c.name == columnRepeated:
					want = parquet.Int64Value(int64((row+n)%2) * int64(r.Packets))
				case !c.optional || !c.field.Missing(r):
					want = valueOf(c, &entry{Record: r, origin: &w.space.origin, interval: 70_000})
				}
				if !parquet.Equal(v, want) {
					t.Fatalf("%s of row %d is %v, not %v", c.name, row+n, v, want)
				}
			}
		}
		row += int(group.NumRows())
	}
	if row != len(list) {
		t.Errorf("%d rows", row)
	}
}

// columnNamedOrExtra is columnNamed with what no field has.
func columnNamedOrExtra(name string) *column {
	for i := range columns {
		if columns[i].name == name {
			return &columns[i]
		}
	}
	panic(name)
}

// valueOf is a value as the library has it.
func valueOf(c *column, e *entry) parquet.Value {
	switch {
	case c.bytes != nil && c.address():
		return parquet.FixedLenByteArrayValue(c.bytes(e, nil))
	case c.bytes != nil:
		return parquet.ByteArrayValue(c.bytes(e, nil))
	case c.flag:
		return parquet.BooleanValue(c.number(e) != 0)
	case c.wide:
		return parquet.Int64Value(int64(c.number(e)))
	}
	return parquet.Int32Value(int32(c.number(e)))
}

// verifyBounds reads the values of a column of a row group, and compares them with the bounds that the file has.
func verifyBounds(t *testing.T, name string, chunk *parquet.FileColumnChunk) (all []parquet.Value) {
	t.Helper()
	index, err := chunk.ColumnIndex()
	if err != nil {
		t.Fatal(err)
	}
	pages := chunk.Pages()
	defer pages.Close()
	var least, most parquet.Value
	compare := chunk.Type().Compare
	for n := 0; ; n++ {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		values := make([]parquet.Value, page.NumValues())
		if _, err := page.Values().ReadValues(values); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		var low, high parquet.Value
		for i := range values {
			v := values[i].Clone()
			if all = append(all, v); v.IsNull() {
				continue
			}
			if low.IsNull() || compare(v, low) < 0 {
				low = v
			}
			if high.IsNull() || compare(v, high) > 0 {
				high = v
			}
		}
		if low.IsNull() != index.NullPage(n) || !low.IsNull() && (!parquet.Equal(low, index.MinValue(n)) || !parquet.Equal(high, index.MaxValue(n))) {
			t.Errorf("%s: page %d of %d has values from %x to %x, the file says %x to %x", name, n, index.NumPages(), low.Bytes(), high.Bytes(), index.MinValue(n).Bytes(), index.MaxValue(n).Bytes())
		}
		if !low.IsNull() && (least.IsNull() || compare(low, least) < 0) {
			least = low
		}
		if !high.IsNull() && (most.IsNull() || compare(high, most) > 0) {
			most = high
		}
		parquet.Release(page)
	}
	low, high, ok := chunk.Bounds()
	if ok == least.IsNull() || ok && (!parquet.Equal(low, least) || !parquet.Equal(high, most)) {
		t.Errorf("%s has values from %v to %v, the file says %v to %v", name, least, most, low, high)
	}
	return all
}

// TestNumbering: a value keeps its number however many come after it, be it small or large.
func TestNumbering(t *testing.T) {
	var n numbering
	first := map[[2]uint64]int32{}
	for round := range 2 {
		for i := range uint64(1000) {
			for _, words := range [][2]uint64{{0, i}, {i, 0}, {i << 40, i}} {
				got, _ := n.placed(words, hashOf(words))
				if want, ok := first[words]; ok && got != want {
					t.Fatalf("round %d: %x has number %d, and had %d", round, words, got, want)
				}
				first[words] = got
			}
		}
	}
	if len(n.list) != len(first) {
		t.Errorf("%d values have %d numbers", len(first), len(n.list))
	}
}

package disk

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/parquet-go/parquet-go"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// groupRows is how many rows a row group has at most: with more, dictionaries are read less often,
// and sealing and queries take more memory.
const groupRows = 1 << 17

// batchRows is how many rows are handed to the columns at once, column by column.
const batchRows = store.BlockRows

// pageBytes is how large a page is at most. Pages without rows that match are skipped.
const pageBytes = 64 << 10

// The keys of a file's metadata.
const (
	metaFormat    = "waymark.format"
	metaIntervals = "waymark.intervals"
	metaGroups    = "waymark.groups"
	metaAged      = "waymark.aged"
)

// formatVersion is what this Waymark writes; it refuses higher ones.
const formatVersion = "1"

// writer writes a file of records.
type writer struct {
	path    string
	file    *os.File
	sums    *sums
	pages   *spool
	parquet *parquet.GenericWriter[any]
	columns []encoder
	space   space
	heads   []store.Head
	groups  []groupMeta
	group   groupMeta
}

// groupMeta is what is known of a row group without reading it.
type groupMeta struct {
	Rows     int           `json:"rows"`
	Records  uint64        `json:"records"` // that are not altogether repeated
	Total    flow.Counters `json:"total"`   // of all packets, each counted once
	Repeated flow.Counters `json:"repeated"`
}

// newWriter writes to a file that gets its name when it is complete. with are the inner objects
// that some record has.
func newWriter(path string, origin flow.Origin, with map[string]bool) (*writer, error) {
	w := &writer{path: path, space: space{origin: origin}}
	schema, encoders, err := schemaOf(listOf(with), func(name string) string { return name })
	if err != nil {
		return nil, err
	}
	w.columns = encoders
	if w.file, err = os.OpenFile(path+tmpSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode); err != nil {
		return nil, err
	}
	if w.pages, err = newSpool(path + ".pages" + tmpSuffix); err != nil {
		return nil, errors.Join(err, w.file.Close(), os.Remove(w.file.Name()))
	}
	w.sums = &sums{to: w.file}
	// Minima and maxima of pages are in the index of pages, behind the records: nothing reads them from the pages, too.
	w.parquet = parquet.NewGenericWriter[any](w.sums, schema, parquet.PageBufferSize(pageBytes), parquet.DataPageStatistics(false),
		parquet.ColumnPageBuffers(w.pages), parquet.CreatedBy("waymark", "1", ""))
	return w, nil
}

// listOf are the columns of a file, with those of inner objects that some record has.
func listOf(with map[string]bool) []column {
	list := slices.Clone(columns)
	for _, object := range objectNames {
		if with[object] {
			list = append(list, objects[object]...)
		}
	}
	return list
}

// schemaOf is that of columns, and their encoders in its order.
func schemaOf(list []column, named func(string) string) (*parquet.Schema, []encoder, error) {
	root := parquet.Group{}
	made := make([]encoder, len(list))
	for i := range list {
		made[i] = newEncoder(&list[i])
		root[named(list[i].name)] = made[i].node()
	}
	schema := parquet.NewSchema("flows", root)
	encoders := make([]encoder, len(list))
	for i := range list {
		path := []string{named(list[i].name)}
		if list[i].pairs {
			path = append(path, "list", "element")
		}
		leaf, ok := schema.Lookup(path...)
		if !ok {
			return nil, nil, errors.New("no column " + list[i].name)
		}
		made[i].index = leaf.ColumnIndex
		encoders[leaf.ColumnIndex] = made[i]
	}
	return schema, encoders, nil
}

// add writes the records of an interval.
func (w *writer) add(e *store.Ended) error {
	w.begin(e.Head())
	return e.Blocks(w.block)
}

// begin begins an interval, whose records follow.
func (w *writer) begin(h store.Head) { w.heads = append(w.heads, h) }

// block writes records of the interval that was begun.
func (w *writer) block(b *store.Block) error {
	if w.group.Rows+b.Len() > groupRows {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	w.group.add(b)
	return w.space.write(b, w.columns, w.parquet)
}

// write writes the rows of a block, column by column.
func (s *space) write(b *store.Block, columns []encoder, to *parquet.GenericWriter[any]) error {
	s.block, s.records = b, b.Records()
	for i, w := range to.ColumnWriters() {
		if _, err := w.WriteRowValues(columns[i].values(s)); err != nil {
			return err
		}
	}
	return nil
}

// counterColumns are those of blocks, in the order of flow.CounterFields.
var counterColumns = func() (list []int) {
	for i := range flow.CounterFields {
		list = append(list, store.Column(flow.FieldNamed(flow.CounterFields[i].Name)))
	}
	return list
}()

func (g *groupMeta) add(b *store.Block) {
	g.Rows += b.Len()
	repeated, same := b.Numbers(store.ColumnRepeated)
	if same && repeated[0] == 0 {
		g.Records += uint64(b.Len())
		for i, at := range counterColumns {
			g.sum(flow.CounterFields[i].Counter(&g.Total), b, at)
		}
		return
	}
	for row, n := range repeated {
		var all flow.Counters
		for i, at := range counterColumns {
			list, _ := b.Numbers(at)
			*flow.CounterFields[i].Counter(&all) = list[row]
		}
		g.record(&all, n)
	}
}

// sum adds a column.
func (g *groupMeta) sum(to *uint64, b *store.Block, column int) {
	list, same := b.Numbers(column)
	if same {
		*to += uint64(len(list)) * list[0]
		return
	}
	for _, n := range list {
		*to += n
	}
}

// record adds a record of which so many packets are repeated.
func (g *groupMeta) record(all *flow.Counters, repeated uint64) {
	again := flow.Counters{}
	if repeated > 0 {
		again = all.Share(repeated)
	}
	once := *all
	once.Subtract(&again)
	if repeated == 0 || once.Packets > 0 {
		g.Records++
	}
	g.Total.Add(&once)
	g.Repeated.Add(&again)
}

func (w *writer) endGroup() error {
	if w.group.Rows == 0 {
		return nil
	}
	w.groups = append(w.groups, w.group)
	w.group = groupMeta{}
	return w.parquet.Flush()
}

// end completes the file, and gives it its name. agedFirst is the first interval that the one in
// it stands for; 0: it has its intervals.
func (w *writer) end(agedFirst uint64) (err error) {
	defer func() {
		if err != nil {
			w.abort()
		}
	}()
	if err := w.endGroup(); err != nil {
		return err
	}
	groups, err := json.Marshal(w.groups)
	if err != nil {
		return err
	}
	w.parquet.SetKeyValueMetadata(metaFormat, formatVersion)
	w.parquet.SetKeyValueMetadata(metaIntervals, encodeHeads(w.heads))
	w.parquet.SetKeyValueMetadata(metaGroups, string(groups))
	if agedFirst > 0 {
		w.parquet.SetKeyValueMetadata(metaAged, strconv.FormatUint(agedFirst, 10))
	}
	if err := w.parquet.Close(); err != nil {
		return err
	}
	if err := errors.Join(w.file.Sync(), w.file.Close(), w.pages.Close()); err != nil {
		return err
	}
	if err := writeFile(sumPath(w.path), w.sums.bytes()); err != nil {
		return err
	}
	return os.Rename(w.path+tmpSuffix, w.path)
}

func (w *writer) abort() {
	w.file.Close()
	w.pages.Close()
	os.Remove(w.path + tmpSuffix)
}

// writeFile writes a small file that is there whole or not at all.
func writeFile(path string, b []byte) error {
	f, err := os.OpenFile(path+tmpSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		if gone := os.Remove(path + tmpSuffix); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return err
	}
	return os.Rename(path+tmpSuffix, path)
}

// encodeHeads packs what is known of intervals without their records.
func encodeHeads(heads []store.Head) string {
	var b []byte
	var wiring *flow.Wiring
	b = binary.AppendUvarint(b, uint64(len(heads)))
	last := store.Head{}
	for i, h := range heads {
		b = binary.AppendUvarint(b, h.Sequence-last.Sequence)
		b = binary.AppendVarint(b, h.From.UnixNano()-nanosOf(last))
		b = binary.AppendVarint(b, h.To.Sub(h.From).Nanoseconds())
		b = binary.AppendUvarint(b, h.Summed)
		b = binary.AppendUvarint(b, uint64(h.Rows))
		if i > 0 && h.Wiring == wiring {
			b = append(b, 0)
		} else {
			text := store.AppendWiring(nil, h.Wiring)
			b = append(binary.AppendUvarint(append(b, 1), uint64(len(text))), text...)
			wiring = h.Wiring
		}
		last = h
	}
	return base64.StdEncoding.EncodeToString(b)
}

func nanosOf(h store.Head) int64 {
	if h.To.IsZero() {
		return 0
	}
	return h.To.UnixNano()
}

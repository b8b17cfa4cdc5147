package disk

import (
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// placeColumns are what databases are sorted by, and what their answers are.
var placeColumns = []column{
	{
		name: columnTime, node: parquet.Encoded(parquet.Timestamp(parquet.Nanosecond), &parquet.RLEDictionary), wide: true,
		number: func(e *entry) uint64 { return uint64(e.from) },
	},
	{name: columnRow, node: parquet.Encoded(parquet.Uint(64), &parquet.DeltaBinaryPacked), wide: true, number: func(e *entry) uint64 { return uint64(e.row) }},
}

// WriteParquet writes the records of an interval as one Parquet file for a database, whose columns have the names of flow.Column, and
// returns these. Columns of inner objects that no record has are left out.
func WriteParquet(to io.Writer, origin flow.Origin, e *store.Ended) (names []string, err error) {
	with := map[string]bool{}
	e.Objects(with)
	list := append(listOf(with), placeColumns...)
	schema, encoders, err := schemaOf(list, flow.Column)
	if err != nil {
		return nil, err
	}
	for i := range list {
		names = append(names, flow.Column(list[i].name))
	}
	w := parquet.NewGenericWriter[any](to, schema, parquet.DataPageStatistics(false), parquet.CreatedBy("waymark", "1", ""))
	s := space{origin: origin, from: e.Head().From.UnixNano()}
	rows := 0
	err = e.Blocks(func(b *store.Block) error {
		if rows += b.Len(); rows > groupRows {
			rows = b.Len()
			if err := w.Flush(); err != nil {
				return err
			}
		}
		err := s.write(b, encoders, w)
		s.before += b.Len()
		return err
	})
	if err != nil {
		return nil, err
	}
	return names, w.Close()
}

// Put sets a field of a record to a value as a column has it: a number, or bytes. Fields of inner objects come in the order of flow.Fields.
func Put(f *flow.Field, r *flow.Record, number uint64, bytes []byte) error {
	c := column{field: f}
	return c.put(r, number, bytes)
}

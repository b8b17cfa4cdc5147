package flow

import (
	"fmt"
	"strings"
)

// ClickHouse is the type of the field's column in ClickHouse. It is nullable where a
// value can be missing, which is not 0; see Field.Missing.
func (f *Field) ClickHouse() string {
	name := map[Kind]string{
		Address: "IPv6", Time: "DateTime64(9, 'UTC')", Signed: "Int64", Flag: "Bool", Pairs: "Array(UInt64)",
	}[f.Kind]
	switch {
	case f.Kind == Text:
		return "LowCardinality(String)"
	case f.Kind == Pairs:
		return name // index and count by turns; an array is empty where there is none
	case f.Kind == Name:
		values := make([]string, len(f.Values))
		for i, v := range f.Values {
			values[i] = fmt.Sprintf("'%s' = %d", v, i)
		}
		name = "Enum8(" + strings.Join(values, ", ") + ")"
	case f.Kind.Number():
		name = "UInt" + f.Width()
	}
	if f.Missing != nil {
		return "Nullable(" + name + ")"
	}
	return name
}

// Column is the name of a field, or of another column, in a database: a dot would make it part of a structure.
func Column(name string) string { return strings.ReplaceAll(name, ".", "_") }

// ClickHouseCodec is how the column is compressed there; empty: as columns are by default.
func (f *Field) ClickHouseCodec() string {
	switch {
	case f.Kind == Time:
		return "DoubleDelta, ZSTD(1)"
	case f.Kind == Signed, f.Kind.Number():
		return "T64, ZSTD(1)"
	}
	return "ZSTD(1)"
}

// Parquet is the logical type of the field's column in a Parquet file, optional where
// ClickHouse has a nullable one.
func (f *Field) Parquet() string {
	if f.Kind.Number() {
		return "INT(" + f.Width() + ", false)"
	}
	return map[Kind]string{
		Text: "STRING", Name: "ENUM", Address: "FIXED_LEN_BYTE_ARRAY(16)", Time: "TIMESTAMP(NANOS, UTC)",
		Signed: "INT(64, true)", Flag: "BOOLEAN", Pairs: "LIST of INT(64, false), index and count by turns",
	}[f.Kind]
}

// Width is how many bits hold the largest value.
func (f *Field) Width() string {
	switch {
	case f.Max <= maxUint8:
		return "8"
	case f.Max <= maxUint16:
		return "16"
	case f.Max <= maxUint32:
		return "32"
	}
	return "64"
}

package otlp

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of AnyValue (opentelemetry/proto/common/v1).
const (
	anyString protowire.Number = 1
	anyBool   protowire.Number = 2
	anyInt    protowire.Number = 3
	anyArray  protowire.Number = 5
)

// value is an AnyValue, encoded.
type value []byte

func appendString(b value, s string) value {
	if !utf8.ValidString(s) { // as protobuf demands
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return appendBytes(b, anyString, s)
}

func appendText(b value, s []byte) value {
	if !utf8.Valid(s) {
		return appendString(b, string(s))
	}
	return appendBytes(b, anyString, s)
}

func appendInt(b value, n int64) value {
	b = protowire.AppendTag(b, anyInt, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(n))
}

func appendBool(b value, is bool) value {
	b = protowire.AppendTag(b, anyBool, protowire.VarintType)
	return protowire.AppendVarint(b, protowire.EncodeBool(is))
}

// appendArray adds an array of values that are encoded as its elements, each with tag and length.
func appendArray(b, elements value) value {
	b = protowire.AppendTag(b, anyArray, protowire.BytesType)
	return protowire.AppendBytes(b, elements)
}

func appendElement(b, v value) value { return appendBytes(b, 1, v) }

// key is the key of a KeyValue, encoded, and the tag of the value that follows.
type key []byte

func newKey(name string) key {
	b := protowire.AppendTag(nil, 1, protowire.BytesType)
	b = protowire.AppendString(b, name)
	return protowire.AppendTag(b, 2, protowire.BytesType)
}

// short is below what a length of one byte may be.
const short = 128

// appendAttribute adds a KeyValue as a field of a message.
func appendAttribute(b []byte, field protowire.Number, k key, v value) []byte {
	if n := len(k) + 1 + len(v); n < short && field < 16 { // nearly all are, and this takes half of the time
		b = append(b, byte(field<<3|protowire.Number(protowire.BytesType)), byte(n))
		b = append(b, k...)
		b = append(b, byte(len(v)))
		return append(b, v...)
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(k)+protowire.SizeBytes(len(v))))
	b = append(b, k...)
	return protowire.AppendBytes(b, v)
}

// appendBytes adds a text, or a message that is encoded, as a field.
func appendBytes[T ~[]byte | ~string](b []byte, field protowire.Number, message T) []byte {
	if len(message) < short && field < 16 {
		b = append(b, byte(field<<3|protowire.Number(protowire.BytesType)), byte(len(message)))
		return append(b, message...)
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(message)))
	return append(b, message...)
}

func appendFixed64(b []byte, field protowire.Number, n uint64) []byte {
	b = protowire.AppendTag(b, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, n)
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, n)
}

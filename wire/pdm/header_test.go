package pdm_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

var sample = pdm.Option{PSNTP: 12, PSNLR: 25, DeltaTLR: 0xDE0B, ScaleDTLR: 46}

func TestParseHeader(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		want pdm.Header
		err  error
		at   int // where the error is
	}{
		{name: "the usual", b: pdm.AppendHeader(nil, 17, sample), want: pdm.Header{Next: 17, Size: 16, Option: 2}},
		{name: "nothing but padding", b: dest(padN(6)).b, want: pdm.Header{Size: 8}},
		{name: "Pad1 before", b: dest(padN(1), padN(1), mark(sample)).b, want: pdm.Header{Size: 16, Option: 4}},
		{name: "raw zeros behind are two Pad1", b: dest(mark(sample), padN(1), padN(1)).b, want: pdm.Header{Size: 16, Option: 2}},
		{name: "options around", b: dest(tlv(4), mark(sample), tlv(2)).b, want: pdm.Header{Size: 24, Option: 8, Others: 2}},
		{name: "odd place", b: dest(padN(1), mark(sample), padN(1)).b, want: pdm.Header{Size: 16, Option: 3}},
		{name: "PDMv2", b: dest(append([]byte{0x0F, 0x12}, make([]byte, 18)...), padN(2)).b, want: pdm.Header{Size: 24, Version2: true}},
		{name: "PDMv2 encrypted", b: dest(append([]byte{0x0F, 0x22}, make([]byte, 34)...), padN(2)).b, want: pdm.Header{Size: 40, Version2: true}},

		{name: "empty", b: nil, err: ipv6.ErrTruncated, at: 0},
		{name: "one byte", b: []byte{17}, err: ipv6.ErrTruncated, at: 1},
		{name: "shorter than it says", b: pdm.AppendHeader(nil, 17, sample)[:15], err: ipv6.ErrTruncated, at: 15},
		{name: "option without length", b: []byte{17, 0, 1, 3, 0, 0, 0, 0x0F}, err: ipv6.ErrMalformed, at: 7},
		{name: "option beyond the end", b: []byte{17, 0, 0x1E, 5, 0, 0, 0, 0}, err: ipv6.ErrMalformed, at: 3},
		{name: "PDM beyond the end", b: []byte{17, 0, 0x0F, 10, 0, 0, 0, 0}, err: ipv6.ErrMalformed, at: 3},
		{name: "PadN beyond the end", b: []byte{17, 0, 1, 5, 0, 0, 0, 0}, err: ipv6.ErrMalformed, at: 3},
		{name: "length of neither version", b: []byte{17, 0, 0x0F, 4, 0, 0, 0, 0}, err: pdm.ErrOptionLength, at: 3},
		{name: "PDM twice", b: dest(mark(sample), mark(sample), padN(6)).b, err: pdm.ErrTwice, at: 14},
		{name: "PDM and PDMv2", b: dest(append([]byte{0x0F, 0x12}, make([]byte, 18)...), mark(sample), padN(6)).b, err: pdm.ErrTwice, at: 22},
		{name: "more options than are walked", b: append([]byte{17, 4}, make([]byte, 38)...), err: ipv6.ErrTooComplex, at: 2 + pdm.MaxOptions},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := pdm.ParseHeader(c.b)
			if c.err != nil {
				wantError(t, err, c.err, c.at)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(pdm.Header{})); d != "" {
				t.Error(d)
			}
			o, _, err := pdm.DecodeHeader(c.b)
			switch {
			case c.want.Version2:
				if !errors.Is(err, pdm.ErrVersion2) {
					t.Errorf("DecodeHeader: %v", err)
				}
			case c.want.Option == 0:
				if !errors.Is(err, pdm.ErrNone) {
					t.Errorf("DecodeHeader: %v", err)
				}
			case err != nil || o != sample:
				t.Errorf("DecodeHeader: %v, %v", o, err)
			}
		})
	}
}

func wantError(t *testing.T, err, want error, at int) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
	var e *pdm.Error
	if !errors.As(err, &e) || e.Offset != at {
		t.Errorf("error %v, want it at byte %d", err, at)
	}
}

func TestDecodeOptionErrors(t *testing.T) {
	whole := mark(sample)
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"empty", nil, ipv6.ErrTruncated},
		{"type only", whole[:1], ipv6.ErrTruncated},
		{"cut short", whole[:11], ipv6.ErrTruncated},
		{"another type", tlv(10), pdm.ErrNone},
		{"PDMv2", []byte{0x0F, 0x12}, pdm.ErrVersion2},
		{"encrypted PDMv2", []byte{0x0F, 0x22}, pdm.ErrVersion2},
		{"length 11", []byte{0x0F, 11}, pdm.ErrOptionLength},
	} {
		if _, err := pdm.DecodeOption(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestOptionEncodeDecodeIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := options().Draw(t, "option")
		wire := o.AppendTo(nil)
		back, err := pdm.DecodeOption(wire)
		if err != nil || back != o {
			t.Fatalf("%+v came back as %+v, %v", o, back, err)
		}
		if again := back.AppendTo(nil); !bytes.Equal(again, wire) {
			t.Fatalf("%x came back as %x", wire, again)
		}
	})
}

func FuzzParseHeader(f *testing.F) {
	f.Add(pdm.AppendHeader(nil, 17, sample))
	f.Add(dest(tlv(4), mark(sample), tlv(2)).b)
	f.Add([]byte{17, 0, 0x0F, 10, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, h, err := pdm.DecodeHeader(b)
		if err != nil {
			return
		}
		if h.Option < 2 || h.Option+pdm.OptionSize > h.Size || h.Size > len(b) {
			t.Fatalf("%+v does not fit in %d bytes", h, len(b))
		}
		if got := b[h.Option : h.Option+pdm.OptionSize]; !bytes.Equal(got, o.AppendTo(nil)) {
			t.Errorf("%v is not %x", o, got)
		}
	})
}

func FuzzDecodeOption(f *testing.F) {
	f.Add(mark(sample))
	f.Add([]byte{0x0F, 0x12})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := pdm.DecodeOption(b)
		if err == nil && !bytes.Equal(o.AppendTo(nil), b[:pdm.OptionSize]) {
			t.Errorf("%x came back as %x", b, o.AppendTo(nil))
		}
		if d, _ := pdm.Duration(o.DeltaTLR, o.ScaleDTLR); d < 0 {
			t.Errorf("%x: time %v", b, d)
		}
		_ = o.String()
	})
}

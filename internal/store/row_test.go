package store

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
)

// Whatever a record holds, the store gives back.
func TestRowKeepsARecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := flowtest.Record(t)
		got := keep(&want)
		if diff := gocmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// keep puts a record into an interval, writes it as the log does, and takes the record out again.
func keep(r *flow.Record) (got flow.Record) {
	iv := New(Default()).Begin(at(0))
	iv.dropNumber(&flow.Drop{Rule: 9})                    // of another row
	iv.iv.reported.put(&flow.PDM{Sent: 1, Lost: -1}, nil) // of another row
	iv.iv.rows.add(row{link: iv.linkNumber(link{})})
	iv.keep(r)
	e := Ended{iv: iv.iv, repeated: []uint64{0, 7}}
	var encoder Encoder
	var decoder Decoder
	read, err := decoder.Decode(encoder.Append(nil, &e))
	if err != nil || read.Len() != 2 || read.repeated[1] != 7 {
		panic(fmt.Sprint(err, read.repeated))
	}
	read.iv.rows.at(1).record(read.iv, &got, &reports{pdm: flow.PDM{Server: flow.Delays{Buckets: make([]flow.DelayBucket, 3)}}})
	return got
}

// A field that is added to the record and forgotten in the row would vanish here.
func TestRowForgetsNoField(t *testing.T) {
	var want flow.Record
	fillEvery(t, reflect.ValueOf(&want).Elem())
	want.Family, want.Direction, want.Unattributed = 6, flow.Egress, false
	got := keep(&want)
	if diff := gocmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// fillEvery gives every field of a struct a value that is not zero.
func fillEvery(t *testing.T, v reflect.Value) {
	t.Helper()
	for f, fv := range v.Fields() {
		switch {
		case fv.Type() == reflect.TypeFor[netip.Addr]():
			fv.Set(reflect.ValueOf(netip.MustParseAddr("2001:db8::7")))
		case fv.Type() == reflect.TypeFor[time.Time]():
			fv.Set(reflect.ValueOf(time.Unix(1, 7)))
		case fv.Kind() == reflect.Struct:
			fillEvery(t, fv)
		case fv.Kind() == reflect.Pointer:
			fv.Set(reflect.New(fv.Type().Elem()))
			fillEvery(t, fv.Elem())
		case fv.Kind() == reflect.Slice:
			fv.Set(reflect.MakeSlice(fv.Type(), 1, 1))
			fillEvery(t, fv.Index(0))
		case fv.Kind() == reflect.String:
			fv.SetString("7")
		case fv.Kind() == reflect.Bool:
			fv.SetBool(true)
		case fv.CanInt():
			fv.SetInt(7)
		case fv.CanUint():
			fv.SetUint(7)
		default:
			t.Fatalf("%s: teach this test, and the row, the kind %s", f.Name, fv.Kind())
		}
	}
}

func TestRowSize(t *testing.T) {
	if got := unsafe.Sizeof(row{}); got > 184 {
		t.Errorf("a row takes %d bytes: correct what Default says of a history", got)
	}
}

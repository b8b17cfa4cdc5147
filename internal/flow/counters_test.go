package flow

import (
	"math"
	"reflect"
	"testing"
)

func TestCounters(t *testing.T) {
	of := reflect.TypeFor[Counters]()
	for i := range of.NumField() {
		if f := of.Field(i); f.Type.Kind() != reflect.Uint64 {
			t.Errorf("%s is a %s: words would split it", f.Name, f.Type)
		}
	}
	sum := Counters{1, 2, 3, 4, 5, 6, 7, 8, 9}
	sum.Add(&Counters{10, 20, 30, 40, 50, 60, 70, 80, 90})
	if want := (Counters{11, 22, 33, 44, 55, 66, 77, 88, 99}); sum != want {
		t.Errorf("sum %+v, want %+v", sum, want)
	}
}

// TestShareOfCounters: shares are exact where all of it is meant, and add up.
func TestShareOfCounters(t *testing.T) {
	whole := Counters{Packets: 3, Bytes: math.MaxUint64, WireBytes: 1000, PayloadBytes: 7, Fragments: 3}
	for n := range whole.Packets + 1 {
		share, rest := whole.Share(n), whole
		if rest.Subtract(&share); share.Packets != n || share.Fragments != n || rest.Packets != 3-n {
			t.Errorf("%d packets: %+v, and %+v left", n, share, rest)
		}
		if rest.Add(&share); rest != whole {
			t.Errorf("%d packets: both parts are %+v", n, rest)
		}
	}
	if share := whole.Share(3); share != whole {
		t.Errorf("all of it: %+v", share)
	}
	if share := (&Counters{}).Share(0); share != (Counters{}) {
		t.Errorf("of nothing: %+v", share)
	}
}

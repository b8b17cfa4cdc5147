package datapath

import "testing"

func TestSum(t *testing.T) {
	type counters struct {
		_     [0]func()
		A, B  uint64
		_     [4]byte
		Steps [2]uint64
		Part  struct{ C uint64 }
		State int32
	}
	one := counters{State: -1, A: 1, B: 1 << 63, Steps: [2]uint64{3, 4}}
	one.Part.C = 5
	two := counters{A: 10, B: 1, Steps: [2]uint64{30, 40}}
	two.Part.C = 50
	got := Sum([]counters{one, two})
	if got.A != 11 || got.B != 1<<63+1 || got.Steps != [2]uint64{33, 44} || got.Part.C != 55 || got.State != 0 {
		t.Errorf("%+v", got)
	}
	if n := Sum([]uint64{1, 2, 3}); n != 6 {
		t.Errorf("1+2+3 = %d", n)
	}
	if none := Sum[counters](nil); none.A != 0 {
		t.Errorf("sum of nothing: %+v", none)
	}
}

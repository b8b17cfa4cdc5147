package flow

import (
	"testing"
	"testing/quick"
)

// What the table keeps of counts are all of their fields but the frames, which coverage counts
// before; and it adds as Counts do.
func TestKept(t *testing.T) {
	check := func(a, b Counts, plain bool) bool {
		a.Frames, a.FrameBytes, b.Frames, b.FrameBytes = 0, 0, 0, 0
		a.PDM, a.IOAM = &PDM{}, &IOAM{}
		for _, d := range []*Drop{a.Drop, b.Drop} {
			if d != nil {
				d.Verdict %= VerdictSeveral + 1
			}
		}
		if plain { // nothing that few flows have
			a = Counts{Counters: Counters{Packets: a.Packets, WireBytes: a.WireBytes}, First: a.First, Last: a.Last, Opening: a.Opening, RTT: a.RTT}
		}
		var k kept
		var got Counts
		k.set(&a)
		if k.into(&got); got != a || k.packets() != a.Packets || (k.rare == nil) != plain || k.reported() != a.reported() {
			t.Logf("%+v\nbecame %+v", a, got)
			return false
		}
		b.PDM, b.IOAM = nil, nil
		k.add(&b)
		a.Add(&b)
		if k.into(&got); got != a {
			t.Logf("the sum is %+v, want %+v", got, a)
			return false
		}
		k.set(&Counts{Last: 1})
		return k == kept{last: 1}
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

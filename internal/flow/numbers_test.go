package flow_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
)

// TestNumbers: of many records, a field reads what it reads of each.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := make([]flow.Record, rapid.IntRange(0, 3).Draw(t, "records"))
		for i := range list {
			r := &list[i]
			for n := range flow.Fields {
				if f := &flow.Fields[n]; f.PutUint != nil && !f.Derived {
					f.PutUint(r, rapid.Uint64().Draw(t, f.Name))
				}
			}
			flowtest.Drop(t, r)
			r.IOAM, r.PDM = flowtest.IOAM(t), flowtest.PDM(t)
		}
		for n := range flow.Fields {
			f := &flow.Fields[n]
			if f.Uint == nil && f.Nanos == nil {
				continue
			}
			got := make([]uint64, len(list))
			f.Numbers(list, got)
			for i := range list {
				want := uint64(0)
				if f.Nanos != nil {
					want = uint64(f.Nanos(&list[i]))
				} else {
					want = f.Uint(&list[i])
				}
				if got[i] != want {
					t.Errorf("%s of record %d is %d, want %d", f.Name, i, got[i], want)
				}
			}
		}
	})
}

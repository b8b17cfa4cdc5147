package flow

import (
	"testing"

	"pgregory.net/rapid"
)

// packetFields are the fields that packets of a flow change, as their Merge says.
func packetFields() (list []*Field) {
	for i := range Fields {
		f := &Fields[i]
		switch f.Merge {
		case MergeSum, MergeOr, MergeMin, MergeMax:
			if f.Combine != nil && f.inObject == nil && f.Kind != Signed {
				list = append(list, f)
			}
		}
	}
	return list
}

func drawCounts(t *rapid.T) (c Counts) {
	for i := range c.words() {
		c.words()[i] = rapid.Uint64Range(1, 1<<40).Draw(t, "counter")
	}
	c.First = rapid.Int64Range(1, 1<<60).Draw(t, "first")
	c.Last = c.First + rapid.Int64Range(0, 1<<40).Draw(t, "duration")
	c.TCPFlags = rapid.Uint16().Draw(t, "flags")
	c.TTLMin = rapid.Uint8().Draw(t, "ttl")
	c.TTLMax = max(c.TTLMin, rapid.Uint8().Draw(t, "ttl"))
	return c
}

// Counts.Add is written out, since it runs for every delta; it does what the table of
// fields declares.
func TestCountsAddAsDeclared(t *testing.T) {
	fields := packetFields()
	if len(fields) < 5 || len(CounterFields) != counters {
		t.Fatalf("only %d fields are compared", len(fields))
	}
	table := NewTable(TableConfig{MaxFlows: 1}, anyName, TableOutput{})
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawCounts(t), drawCounts(t)
		var want, from, got Record
		var key Key
		table.record(&want, &key, &a)
		table.record(&from, &key, &b)
		before := a.Counters
		a.Add(&b)
		table.record(&got, &key, &a)
		for i := range CounterFields {
			f := &CounterFields[i]
			if sum := *f.Counter(&before) + *f.Counter(&b.Counters); f.Merge != MergeSum || *f.Counter(&a.Counters) != sum {
				t.Errorf("%s: %d, want %d", f.Name, *f.Counter(&a.Counters), sum)
			}
		}
		for _, f := range fields {
			f.Combine(&want, &from)
			if x, y := string(f.Append(nil, &Origin{}, &got)), string(f.Append(nil, &Origin{}, &want)); x != y {
				t.Errorf("%s: %s, the field says %s", f.Name, x, y)
			}
		}
	})
}

// BenchmarkAdd holds Counts.Add against the same by the table of fields.
func BenchmarkAdd(b *testing.B) {
	x := Counts{Counters: Counters{Packets: 1, Bytes: 100}, First: 1, Last: 2, TTLMin: 64, TTLMax: 64}
	y := x
	b.Run("written out", func(b *testing.B) {
		for b.Loop() {
			x.Add(&y)
		}
	})
	b.Run("by the table", func(b *testing.B) {
		fields := packetFields()
		var to, from Record
		to.Counters, from.Counters = x.Counters, y.Counters
		for b.Loop() {
			for _, f := range fields {
				f.Combine(&to, &from)
			}
		}
	})
}

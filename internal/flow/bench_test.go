package flow

import (
	"testing"
	"time"
)

// BenchmarkTable is the way of a delta through the table to an expired record,
// with n flows that all end in the interval they begin in.
func BenchmarkTable(b *testing.B) {
	const flows = 100_000
	deltas := make([]Delta, flows)
	for i := range deltas {
		deltas[i] = *tcpDelta(uint16(i), epoch, tcpACK)
		deltas[i].Src[14], deltas[i].Src[15] = byte(i>>16), byte(i>>24)
		deltas[i].Iface = NewIface(0, uint32(1+i>>16))
	}
	var records int
	table := NewTable(TableConfig{MaxFlows: 2 * flows, IdleTimeout: time.Second}, func(Iface) (string, string) { return "eth0", "" },
		TableOutput{Expired: func(*Record) { records++ }})
	b.ReportAllocs()
	for b.Loop() {
		for i := range deltas {
			table.Merge(&deltas[i])
		}
		table.EndInterval(epoch.Add(time.Minute))
		table.EndInterval(epoch.Add(2 * time.Minute))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(records), "ns/record")
}

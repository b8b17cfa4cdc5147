package clickhouse

import (
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// BenchmarkEncode makes what is sent of an interval of 100,000 flows: ns and bytes of a record.
func BenchmarkEncode(b *testing.B) {
	const rows = 100_000
	e := receiver{&Exporter{cfg: Default(), origin: origin}}
	memory := store.New(store.Default())
	var ended store.Ended
	memory.OnEnd(func(x store.Ended) { ended = x })
	iv := memory.Begin(epoch)
	for n := range rows {
		x := uint32(n) * 2654435761
		r := flow.Record{
			Iface: "eth0", IfIndex: 2, Direction: flow.Direction(n % 2), Family: 4, Proto: 6,
			Src: netip.AddrFrom4([4]byte{10, 0, byte(x >> 8), byte(x)}), Dst: netip.AddrFrom4([4]byte{192, byte(x >> 28), byte(x >> 16), byte(x >> 24)}),
			SrcPort: uint16(x >> 7), DstPort: []uint16{80, 443, 53}[n%3], TTLMin: 60, TTLMax: 64, TCPFlags: 0x1b,
			Counters: flow.Counters{Packets: uint64(1 + x%90), Bytes: uint64(x % 90000), WireBytes: uint64(x % 91000)},
			First:    epoch.Add(time.Duration(x)), Last: epoch.Add(time.Duration(x) + time.Second),
		}
		iv.Add(&r)
	}
	iv.End(epoch.Add(10 * time.Second))
	size := 0
	for b.Loop() {
		data, err := e.Encode(&ended, 1, 1)
		if err != nil {
			b.Fatal(err)
		}
		size = len(data)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/record")
	b.ReportMetric(float64(size)/rows, "B/record")
}

package analyze

import (
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// BenchmarkKeep measures what a frame takes from its bytes to the disk: decoded, logged, synchronized, and sealed into files
// when these are due. It reports rows per second, of one core.
func BenchmarkKeep(b *testing.B) {
	cfg := configure(b.TempDir(), "127.0.0.1:0")
	settings.Section.Edit(&cfg).Size = 1 << 30
	a, err := New(cfg, Deps{Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	h, err := a.openHost("athos")
	if err != nil {
		b.Fatal(err)
	}
	defer h.disk.Close()
	const rows = 10000
	from := time.Now().Add(-24 * time.Hour)
	bodies := make([][]byte, 64)
	for i := range bodies {
		bodies[i] = bodyOf(uint64(i+1), rows, from.Add(time.Duration(i)*10*time.Second))
	}
	b.ResetTimer()
	n := 0
	for i := 0; b.Loop(); i++ {
		body := append([]byte(nil), bodies[i%len(bodies)]...)
		frame.Finish(body, uint64(1+i/len(bodies)), uint64(1+i%len(bodies)), rows)
		if _, refused := a.keep(h, body); refused != nil {
			b.Fatal(&refused.Error)
		}
		n += rows
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}

// bodyOf is a frame with an interval of flows that differ in all they can.
func bodyOf(sequence uint64, rows int, from time.Time) []byte {
	var ended store.Ended
	s := store.New(store.Default())
	s.OnEnd(func(e store.Ended) { ended = e })
	iv := s.Begin(from)
	for i := range rows {
		k := uint32(i)*2654435761 + uint32(sequence)*40503
		packets := uint64(1 + k%1000)
		r := flow.Record{
			Iface: "eth0", IfIndex: 2, Direction: flow.Direction(i & 1), Family: 4, Proto: 6, TCPFlags: 0x1b, TTLMin: 64, TTLMax: 64,
			Src: netip.AddrFrom4([4]byte{10, byte(k >> 24), byte(k >> 16), 1}), Dst: netip.AddrFrom4([4]byte{10, 0, byte(k >> 8), byte(k)}), SrcPort: uint16(k >> 16), DstPort: 443,
			Counters: flow.Counters{Packets: packets, Bytes: packets * 613, PayloadBytes: packets * 500, WireBytes: packets * 627},
			First:    from.Add(time.Duration(k%9000) * time.Millisecond), Last: from.Add(9 * time.Second),
		}
		iv.Add(&r)
	}
	iv.End(from.Add(10 * time.Second))
	var encoder store.Encoder
	body := encoder.Append(frame.Begin(nil), &ended)
	frame.Finish(body, 1, sequence, uint32(rows))
	return body
}

// BenchmarkHosts measures what an analyzer has of so many hosts: memory after a collection of garbage, and bytes on disk for a row,
// once a day of intervals of 1,000 rows is kept.
func BenchmarkHosts(b *testing.B) {
	cfg := configure(b.TempDir(), "127.0.0.1:0")
	a, err := New(cfg, Deps{Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	const rows, intervals = 1000, 288
	from := time.Now().Add(-24 * time.Hour)
	bodies := make([][]byte, intervals)
	for i := range bodies {
		bodies[i] = bodyOf(uint64(i+1), rows, from.Add(time.Duration(i)*5*time.Minute))
	}
	hosts := 0
	for b.Loop() {
		h, refused := a.host(fmt.Sprintf("host-%d", hosts))
		if refused != nil {
			b.Fatal(&refused.Error)
		}
		defer h.disk.Close()
		hosts++
		for i, body := range bodies {
			body = append([]byte(nil), body...)
			frame.Finish(body, 1, uint64(1+i), rows)
			if _, refused := a.keep(h, body); refused != nil {
				b.Fatal(&refused.Error)
			}
		}
	}
	b.ReportMetric(heap()/1e6, "heap-MB")
	var bytes uint64
	for _, h := range a.all() {
		bytes += h.disk.Status().Bytes
	}
	b.ReportMetric(float64(bytes)/float64(hosts*intervals*rows), "disk-B/row")
}

func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

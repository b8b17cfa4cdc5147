package store

import (
	"fmt"
	"testing"

	"github.com/waymark-net/waymark/internal/query"
)

func BenchmarkAdd(b *testing.B) {
	for _, flows := range []int{1 << 14, 1 << 20} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			s := New(Default())
			r := record(1, 1, 1)
			b.ReportAllocs()
			for b.Loop() {
				iv := s.Begin(at(0))
				for n := range flows {
					r.SrcPort = uint16(n)
					r.Bytes = uint64(uint32(n) * 2654435761 & 0xffffff)
					iv.Add(&r)
				}
				iv.End(at(1))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*flows), "ns/record")
		})
	}
}

func BenchmarkQuery(b *testing.B) {
	s := New(Default())
	iv := s.Begin(at(0))
	for n := range 131072 {
		r := record(byte(n), byte(n>>8), uint64(n))
		r.SrcPort = uint16(n >> 8)
		iv.Add(&r)
	}
	iv.End(at(1))
	for _, by := range []string{"flow", "src/24", "proto"} {
		b.Run(by, func(b *testing.B) {
			q := query.Plan{By: parseBy(b, by), Limit: 20}
			for b.Loop() {
				ask(b, s, q)
			}
		})
	}
}

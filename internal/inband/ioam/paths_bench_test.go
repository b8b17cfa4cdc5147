package ioam

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	wire "github.com/waymark-net/waymark/wire/ioam"
)

// BenchmarkPaths measures what adding a trace to its path takes in the kernel, beyond an
// empty program.
func BenchmarkPaths(b *testing.B) {
	h := newHost(b, Config{Time: wire.POSIX, Transit: TransitTC}, decapsulating())
	for _, n := range []int{1, 5, 12} {
		var hops []wire.Hop
		for i := range n {
			hops = append(hops, at(wire.POSIX, uint32(i+1), 1, 2, time.Now().Add(time.Duration(i)*10*time.Microsecond), 5000))
		}
		frame := carrying(b, traced(pathFields, false, 0, hops...))
		b.Run(fmt.Sprintf("hops=%d", n), func(b *testing.B) {
			h.inside(b, func() {
				per := func(program string) float64 {
					var ctx [48]uint32
					ctx[10] = uint32(h.veth.From)
					best := 1e9
					for range 5 { // others run meanwhile
						opts := ebpf.RunOptions{Data: frame, Context: ctx, Repeat: 20000}
						start := time.Now()
						if _, err := h.coll.Programs[program].Run(&opts); err != nil {
							b.Fatal(err)
						}
						best = min(best, float64(time.Since(start).Nanoseconds())/20000)
					}
					return best
				}
				for b.Loop() {
					b.ReportMetric(per("test_collect")-per("test_empty"), "ns/trace")
				}
			})
		})
	}
}

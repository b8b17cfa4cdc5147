package ioam

import (
	"fmt"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// BenchmarkPaths measures what adding a trace to its path takes in the kernel, beyond an
// empty program.
func BenchmarkPaths(b *testing.B) {
	h := newHost(b, Config{Time: wire.POSIX, Transit: TransitTC}, decapsulating())
	// Without a context, frames arrive at the first interface.
	if err := h.node.attach(flow.NewIface(0, 1), fromName); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 5, 12} {
		var hops []wire.Hop
		for i := range n {
			hops = append(hops, at(wire.POSIX, uint32(i+1), 1, 2, time.Now().Add(time.Duration(i)*10*time.Microsecond), 5000))
		}
		frame := carrying(b, traced(pathFields, false, 0, hops...))
		b.Run(fmt.Sprintf("hops=%d", n), func(b *testing.B) {
			h.inside(b, func() {
				per := func(program string) time.Duration {
					best := time.Hour
					for range 5 { // others run meanwhile
						_, took, err := h.program(b, program).Benchmark(frame, 100_000, nil)
						if err != nil {
							b.Fatal(err)
						}
						best = min(best, took)
					}
					return best
				}
				for b.Loop() {
					b.ReportMetric(float64(per("test_collect")-per("test_empty")), "ns/trace")
				}
			})
		})
	}
}

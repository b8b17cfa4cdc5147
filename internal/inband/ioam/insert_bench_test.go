package ioam

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// What it costs to insert so many bytes, with 64 bytes of headroom in front of the frame: beyond, the kernel copies the
// packet's linear part into more memory.
func BenchmarkInsertedBytes(b *testing.B) {
	h := newInsertingHost(b, false, node())
	h.know(b)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	for _, payload := range []int{100, 1000} {
		for _, c := range []struct{ options, space int }{
			{1, 8}, {1, 32}, {1, 40}, {1, 48}, {1, 56}, {1, 104}, {1, 244}, {2, 32}, {3, 32}, {4, 32}, {6, 32}, {8, 32}, {11, 32},
		} {
			var list []wire.Body
			for range c.options {
				list = append(list, mustTrace(b, spaceA, c.space))
			}
			n := inserting(b, insertionTo("::/0", list...))
			n.ClosedDomain = true
			if err := h.node.Apply(n); err != nil {
				b.Fatal(err)
			}
			frame := packet.Frame{Data: packet.Eth().IPv6(hostA, hostB).UDP(1000, 2000).Payload(payload).Bytes()}
			grown := 0
			h.inside(b, func() { grown = len(h.leave(b, frame, 0)) - len(frame.Data) })
			b.Run(fmt.Sprintf("payload %d, options %d, bytes %d", payload, c.options, grown), func(b *testing.B) {
				p := h.program(b, "test_leave")
				before, err := p.Stats()
				if err != nil {
					b.Fatal(err)
				}
				h.inside(b, func() {
					for b.Loop() {
						h.leave(b, frame, 0)
					}
				})
				after, err := p.Stats()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(after.RunCount-before.RunCount), "ns/insertion")
			})
		}
	}
}

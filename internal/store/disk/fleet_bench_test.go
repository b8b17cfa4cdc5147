package disk

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// BenchmarkHosts asks for traffic by port of three hosts that have 100,000 flows in common, in files: counted once, and at each host.
func BenchmarkHosts(b *testing.B) {
	f := fleet{b.TempDir(), map[string]*both{}}
	defer f.close(b)
	const flows, intervals = 100_000, 8
	for hop, host := range []string{"alpha", "porthos", "omega"} {
		of := f.of(b, host)
		for n := range intervals {
			var list []flow.Record
			for i := range uint32(flows) {
				src := binary.BigEndian.AppendUint32(nil, 10<<24|i/16)
				r := flow.Record{
					Iface: "eth0", IfIndex: 2, Direction: flow.Egress, Family: 4, Proto: 6, SrcPort: uint16(i * 7), DstPort: uint16(i % 100),
					Src: netip.AddrFrom4([4]byte(src)), Dst: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), TTLMin: uint8(64 - hop), TTLMax: uint8(64 - hop),
					Counters: flow.Counters{Packets: 10, Bytes: uint64(1000 + i)}, First: at(n), Last: at(n),
				}
				if hop > 0 {
					r.Direction = flow.Ingress
				}
				list = append(list, r)
			}
			iv := of.memory.Begin(at(n))
			for i := range list {
				iv.Add(&list[i])
			}
			iv.End(at(n + 1))
			of.disk.Work()
		}
		if err := of.disk.Seal(); err != nil {
			b.Fatal(err)
		}
	}
	_, disk := f.both()
	for _, everywhere := range []bool{false, true} {
		b.Run(fmt.Sprintf("everywhere=%t", everywhere), func(b *testing.B) {
			p := query.Plan{Sums: []string{"bytes"}, Everywhere: everywhere}
			p.By, _ = query.ParseBy("dport")
			for b.Loop() {
				a := askFleet(b, disk, p)
				if a.EachHost != "" || !everywhere && a.Shared != flows {
					b.Fatalf("%d flows, %q", a.Shared, a.EachHost)
				}
			}
			b.ReportMetric(3*flows*intervals*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

package balance

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// BenchmarkPacket measures the program with packets of 100,000 connections, one after the other, by the kernel's account of its run
// time, and an empty program in turn with it. Each packet comes by a system call of its own, so little of what it needs is in
// the nearest caches.
func BenchmarkPacket(b *testing.B) {
	const connections, rounds = 100_000, 8
	s := newScene(b, 3, Config{Connections: 4 * connections, NewPerSecond: 1 << 30, Idle: time.Hour})
	closer, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer closer.Close()
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	defer empty.Close()
	balanced, err := s.dp.Copy(datapath.Early)
	if err != nil {
		b.Fatal(err)
	}
	// The copy that is run is bound to no device, and cannot ask for VLAN tags.
	ports := &s.memory.Values[0].Ports
	for i := range ports {
		ports[i].Flags &^= uint32(abiForwardFlagFORWARD_HIDES_TAGS)
	}
	link := s.linkTo(b)
	for _, how := range []struct {
		name string
		way  Forwarding
	}{{"l2", L2}, {"ipip", IPIP}, {"gue", GUE}} {
		b.Run(how.name, func(b *testing.B) {
			one := s.serviceOf(vip4, 443, packet.ProtoTCP, how.way, false)
			s.apply(b, one)
			defer s.apply(b)
			frame := packet.Eth().IPv4("10.1.0.2", vip4.String()).TCP(1000, 443).Flags(packet.ACK).Payload(20).Bytes()
			copy(frame, link)
			round := func(p *ebpf.Program) float64 {
				before, err := p.Stats()
				if err != nil {
					b.Fatal(err)
				}
				if err := s.lb.Do(func() error {
					for n := range connections {
						binary.BigEndian.PutUint32(frame[26:], 0x0a010100+uint32(n/50_000))
						binary.BigEndian.PutUint16(frame[34:], uint16(1024+n%50_000))
						ctx := struct{ Data, End, Meta, Ingress, Queue, Egress uint32 }{End: uint32(len(frame)), Ingress: s.ifaces["c"].IfIndex()}
						if _, err := p.Run(&ebpf.RunOptions{Data: frame, Context: ctx}); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
				after, err := p.Stats()
				if err != nil {
					b.Fatal(err)
				}
				return float64(after.Runtime-before.Runtime) / float64(after.RunCount-before.RunCount)
			}
			for range 3 { // now they are known, and the flow table has grown
				round(balanced)
				if err := s.dp.Drain(func(*flow.Delta) {}); err != nil {
					b.Fatal(err)
				}
			}
			var with, without []float64
			for range rounds {
				without, with = append(without, round(empty)), append(with, round(balanced))
			}
			slices.Sort(with)
			slices.Sort(without)
			b.ReportMetric(with[rounds/2]-without[rounds/2], "ns/packet-over-empty")
			b.ReportMetric(with[0]-without[0], "ns/least-over-empty")
			if n := s.stateOf(b, one.Name).Packets[0]; n != (rounds+3)*connections {
				ports, _ := s.Ports()
				b.Fatalf("%d packets left for a backend: %+v %+v", n, s.stateOf(b, one.Name).Counts, ports)
			}
			b.Log(fmt.Sprint("balanced ", with, ", empty ", without, ", ", netip.AddrPortFrom(vip4, 443), " ", s.stateOf(b, one.Name).Packets))
		})
	}
}

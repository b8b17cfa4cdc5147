package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/packet"
)

// passLane is a generator, a router and a sink, each in a namespace: packets arrive at passInto of the router and leave by
// passOut, or not.
type passLane struct {
	from, router, sink *space
	in, out            netlink.Link // of the router
	packets            passPackets
	programs           *ebpf.Collection
	end                link.Link // counts what arrived
}

const (
	passGenerator = "send0"
	passInto      = "in0"
	passOut       = "out0"
	passSink      = "end0"
)

// Addresses of a lane. Packets are to or from 10.0.0.0/8; passService is where those are to that are balanced.
const (
	passClient  = "198.51.100.2"
	passService = "192.0.2.53"
	passNear    = "198.51.100.1" // the router's, towards the generator
	passAway    = "203.0.113.1"  // and towards the sink
	passHost    = "203.0.113.2"  // the first of the sink's
)

// passPackets are those of a lane: IPv4 datagrams of so many flows, which differ in one address. Checksums are right.
type passPackets struct {
	flows   int
	shift   int  // by how many bits addresses of flows are apart
	service bool // flows differ in their source; all are to passService. Else they differ in their destination.
}

const passPort = 443

// frame is a packet of the first flow, less the addresses of its link.
func (p passPackets) frame() []byte {
	const udpSum, ipID = 14 + 20 + 6, 14 + 4
	from, to := passClient, "10.0.0.0"
	if p.service {
		from, to = "10.0.0.0", passService
	}
	frame := packet.Eth().IPv4(from, to).UDP(5000, passPort).Payload(payload).Bytes()
	clear(frame[udpSum : udpSum+2]) // there is none
	// The identification makes up for addresses.
	binary.BigEndian.PutUint16(frame[ipID:], 0xffff)
	binary.BigEndian.PutUint16(frame[14+10:], 0)
	binary.BigEndian.PutUint16(frame[14+10:], headerSum(frame[14:34]))
	return frame
}

// headerSum is the checksum of an IPv4 header whose own is 0.
func headerSum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum&0xffff + sum>>16
	return ^uint16(sum&0xffff + sum>>16)
}

// frame is one of the first flow.
func (l *passLane) frame() []byte {
	frame := l.packets.frame()
	copy(frame, l.in.Attrs().HardwareAddr)
	return frame
}

// set has programs write the packets.
func (l *passLane) set(spec *ebpf.CollectionSpec, ifindex int) error {
	const ipID = 14 + 4
	p, frame := l.packets, l.frame()
	c := struct {
		Template        [10]uint64
		Address, Shift  uint32
		Sums            [2]uint32
		Ifindex, Length uint32
	}{Address: sourceIPv4 + 4, Shift: uint32(p.shift), Sums: [2]uint32{ipID, ipID}, Ifindex: uint32(ifindex), Length: uint32(len(frame))}
	if p.service {
		c.Address = sourceIPv4
	}
	for i := range c.Template {
		c.Template[i] = binary.NativeEndian.Uint64(frame[8*i:])
	}
	// cfg_vary of bpf/test/vary.h
	vary := struct{ Flows, Step, Address, BeforeAddress, Ports, DestinationPort uint32 }{
		Flows: uint32(p.flows), Step: uint32(program.Stride % uint64(p.flows)),
	}
	return errors.Join(spec.Variables["cfg_pass"].Set(c), spec.Variables["cfg_vary"].Set(vary))
}

func newPassLane(p passPackets) (_ *passLane, err error) {
	l := &passLane{packets: p}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for _, s := range []**space{&l.from, &l.router, &l.sink} {
		if *s, err = newSpace(); err != nil {
			return nil, err
		}
	}
	first, err := connectSpaces(l.from, l.router, passGenerator, passInto)
	if err != nil {
		return nil, err
	}
	if _, err = connectSpaces(l.router, l.sink, passOut, passSink); err != nil {
		return nil, err
	}
	if l.in, err = l.router.handle.LinkByName(passInto); err != nil {
		return nil, err
	}
	if l.out, err = l.router.handle.LinkByName(passOut); err != nil {
		return nil, err
	}
	last, err := l.sink.handle.LinkByName(passSink)
	if err != nil {
		return nil, err
	}
	if err := l.route(last); err != nil {
		return nil, err
	}
	spec, err := program.Pass()
	if err != nil {
		return nil, err
	}
	loadOnly(spec, "pass_send", "pass_arrive", "pass_least")
	if err := l.set(spec, first.Attrs().Index); err != nil {
		return nil, err
	}
	if l.programs, err = ebpf.NewCollection(spec); err != nil {
		return nil, fmt.Errorf("loading the generator: %w", err)
	}
	return l, l.sink.do(probeProcessor, func() error {
		l.end, err = link.AttachXDP(link.XDPOptions{Program: l.programs.Programs["pass_arrive"], Interface: last.Attrs().Index, Flags: link.XDPDriverMode})
		return err
	})
}

// connectSpaces makes a pair of interfaces that are up. GRO makes veth receive by NAPI, as network cards do.
func connectSpaces(a, b *space, nameA, nameB string) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = nameA
	if err := a.handle.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerNamespace: netlink.NsFd(b.file.Fd())}); err != nil {
		return nil, fmt.Errorf("adding the interfaces %s and %s: %w", nameA, nameB, err)
	}
	end, err := a.handle.LinkByName(nameA)
	if err != nil {
		return nil, err
	}
	other, err := b.handle.LinkByName(nameB)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(a.handle.LinkSetUp(end), b.handle.LinkSetUp(other)); err != nil {
		return nil, fmt.Errorf("setting %s and %s up: %w", nameA, nameB, err)
	}
	if err := errors.Join(
		a.do(probeProcessor, func() error { return lab.SetFeatures(nameA, true, "rx-gro") }),
		b.do(probeProcessor, func() error { return lab.SetFeatures(nameB, true, "rx-gro") }),
	); err != nil {
		return nil, err
	}
	return end, nil
}

// route makes the router one, with a route for each flow where these differ in their destination.
func (l *passLane) route(end netlink.Link) error {
	if err := l.router.do(probeProcessor, func() error {
		for file, text := range map[string]string{"ip_forward": "1", "conf/all/rp_filter": "0", "conf/" + passInto + "/rp_filter": "0"} {
			if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4", file), []byte(text), 0); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("having a namespace forward: %w", err)
	}
	h := l.router.handle
	for _, one := range []struct {
		link netlink.Link
		addr string
	}{{l.in, passNear}, {l.out, passAway}} {
		if err := h.AddrAdd(one.link, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(one.addr), Mask: net.CIDRMask(24, 32)}}); err != nil {
			return fmt.Errorf("adding the address %s: %w", one.addr, err)
		}
	}
	for i := range passBackends {
		if err := l.sink.handle.AddrAdd(end, &netlink.Addr{IPNet: &net.IPNet{IP: passBackend(i), Mask: net.CIDRMask(24, 32)}}); err != nil {
			return fmt.Errorf("adding the address %v: %w", passBackend(i), err)
		}
		next := &netlink.Neigh{LinkIndex: l.out.Attrs().Index, State: netlink.NUD_REACHABLE, IP: passBackend(i), HardwareAddr: end.Attrs().HardwareAddr}
		if err := h.NeighAdd(next); err != nil {
			return fmt.Errorf("adding a neighbour: %w", err)
		}
	}
	if l.packets.service {
		back := &netlink.Route{LinkIndex: l.in.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}, Scope: netlink.SCOPE_LINK}
		there := &netlink.Route{LinkIndex: l.out.Attrs().Index, Dst: &net.IPNet{IP: net.ParseIP(passService), Mask: net.CIDRMask(32, 32)}, Gw: passBackend(0)}
		return errors.Join(h.RouteAdd(back), h.RouteAdd(there))
	}
	var batch strings.Builder // a request for each takes minutes
	for i := range l.packets.flows {
		to := binary.BigEndian.AppendUint32(nil, 10<<24|uint32(i)<<l.packets.shift)
		fmt.Fprintf(&batch, "route add %v/%d via %v dev %s\n", net.IP(to), 32-l.packets.shift, passBackend(0), passOut)
	}
	_, err := l.router.command(context.Background(), batch.String(), "ip", "-batch", "-")
	return err
}

// passBackends are addresses of the sink.
const passBackends = 3

func passBackend(i int) net.IP {
	ip := net.ParseIP(passHost).To4()
	ip[3] += byte(i)
	return ip
}

// shoot sends n frames, at least, and tells what each took: the kernel does all of it on the thread that sends.
func (l *passLane) shoot(n int) (v volley, err error) {
	sent, arrived, err := l.counts()
	if err != nil {
		return v, err
	}
	err = l.from.do(senderProcessor, func() error {
		took, err := sendLive(l.programs.Programs["pass_send"], l.frame(), n)
		v.ns = float64(took)
		return err
	})
	if err != nil {
		return v, err
	}
	sentAfter, arrivedAfter, err := l.counts()
	v.sent, v.received = sentAfter-sent, arrivedAfter-arrived
	v.ns /= float64(v.sent)
	return v, err
}

func (l *passLane) counts() (sent, arrived uint64, err error) {
	var senders program.Senders
	err = errors.Join(l.programs.Variables["senders"].Get(&senders), l.programs.Variables["pass_arrived"].Get(&arrived))
	for _, s := range senders.Cpu {
		sent += s.Packets
	}
	return sent, arrived, err
}

func (l *passLane) close() {
	if l.end != nil {
		l.end.Close()
	}
	if l.programs != nil {
		l.programs.Close()
	}
	for _, s := range []*space{l.from, l.router, l.sink} {
		if s != nil {
			s.close()
		}
	}
}

package pdm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

// pdmHost runs the programs as an interface of a host would, with a clock that
// stands until it is set. Being one table, it is both ends of a flow at once.
type pdmHost struct {
	*pdmBench
	veth    *datapathtest.Veth
	ifindex int
	reasons map[string]uint64
	unknown bool // nothing is known of paths; else each datagram's takes marks
}

// everything names all packets, for as long as a test's clock may tell.
var everything = policy.Policy{To: netip.MustParsePrefix("::/0"), For: 1000 * time.Hour}

func newPDMHost(t testing.TB, cfg Config, policies ...policy.Policy) *pdmHost {
	t.Helper()
	v := datapathtest.NewVeth(t)
	h := &pdmHost{pdmBench: loadPDM(t, cfg), veth: v, ifindex: v.From, reasons: map[string]uint64{}}
	if err := h.pdm.attach(flow.NewIface(0, uint32(h.ifindex)), "from"); err != nil {
		t.Fatal(err)
	}
	if len(policies) == 0 {
		policies = []policy.Policy{everything}
	}
	if err := h.pdm.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	h.set(t, 1e9)
	return h
}

// set sets the clock.
func (h *pdmHost) set(t testing.TB, ns uint64) {
	t.Helper()
	for _, c := range []*ebpf.Collection{h.coll, h.ingress} {
		if err := c.Variables["test_now"].Set(ns); err != nil {
			t.Fatal(err)
		}
	}
}

// run sends a frame through a program of pdmtest.
func (h *pdmHost) run(t testing.TB, program string, f packet.Frame) (out []byte, verdict int32) {
	t.Helper()
	err := h.veth.Do(func() (err error) {
		out, verdict, err = h.runHere(program, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, verdict
}

// runHere is run for callers that are in the namespace of the interface.
func (h *pdmHost) runHere(program string, f packet.Frame) (out []byte, verdict int32, err error) {
	if err := h.know(program, f.Data); err != nil {
		return nil, 0, err
	}
	// struct __sk_buff in words: what a test run takes of it.
	var ctx [48]uint32
	ctx[10], ctx[41], ctx[44] = uint32(h.ifindex), uint32(f.GSO.Segments), uint32(f.GSO.Size)
	opts := ebpf.RunOptions{Data: f.Data, DataOut: make([]byte, len(f.Data)+256), Context: ctx}
	p := h.coll.Programs[program]
	if p == nil {
		p = h.ingress.Programs[program]
	}
	v, err := p.Run(&opts)
	if err != nil {
		return nil, 0, fmt.Errorf("%s on %d bytes: %w", program, len(f.Data), err)
	}
	return opts.DataOut, int32(v), nil
}

// pass is run where the verdict must be "unspecified".
func (h *pdmHost) pass(t testing.TB, program string, frame []byte) []byte {
	t.Helper()
	out, verdict := h.run(t, program, packet.Frame{Data: frame})
	if verdict != -1 {
		t.Fatalf("verdict %d", verdict)
	}
	return out
}

func (h *pdmHost) send(t testing.TB, frame []byte) []byte { return h.pass(t, "test_egress", frame) }
func (h *pdmHost) receive(t testing.TB, frame []byte) []byte {
	return h.pass(t, "test_ingress", frame)
}

// why are the reasons counted since the last call, with their packets.
func (h *pdmHost) why(t testing.TB) map[string]uint64 {
	t.Helper()
	passed, err := h.pdm.Passed()
	if err != nil {
		t.Fatal(err)
	}
	diff, now := map[string]uint64{}, map[string]uint64{}
	for _, u := range passed {
		now[u.Reason] += u.Packets
	}
	for reason, n := range now {
		if n != h.reasons[reason] {
			diff[reason] = n - h.reasons[reason]
		}
	}
	h.reasons = now
	return diff
}

const etherLen = 14

// option is what a frame carries.
func option(t testing.TB, frame []byte) pdm.Option {
	t.Helper()
	o, err := pdm.Find(frame[etherLen:])
	if err != nil {
		t.Fatalf("%v:\n%x", err, frame)
	}
	return o
}

// putState begins a flow's state at a number of the test's choice.
func (h *pdmHost) putState(t testing.TB, key abiMarkKey, psn uint16) {
	t.Helper()
	s := abiPdmState{Psn: uint32(psn), PsnFirst: uint32(psn), Id: 1<<32 + uint64(h.states(t))}
	s.Guard.Flags = guardPassed
	h.setState(t, key, s)
}

// place is where the state of a flow is, unless that is the map.
func (h *pdmHost) place(t testing.TB, key abiMarkKey) *abiPdmNear {
	t.Helper()
	for i := range h.pdm.cfg.MaxEntries {
		n, err := h.pdm.reader.places.at(i)
		if err != nil {
			t.Fatal(err)
		}
		if n.Owner > 0 && n.Key == key {
			return n
		}
	}
	return nil
}

func (h *pdmHost) setState(t testing.TB, key abiMarkKey, s abiPdmState) {
	t.Helper()
	if n := h.place(t, key); n != nil {
		n.State = s
	} else if err := h.pdm.maps["pdm_states"].Put(&key, &s); err != nil {
		t.Fatal(err)
	}
}

func (h *pdmHost) state(t testing.TB, key abiMarkKey) (s abiPdmState, ok bool) {
	t.Helper()
	if n := h.place(t, key); n != nil {
		return n.State, true
	}
	err := h.pdm.maps["pdm_states"].Lookup(&key, &s)
	if isGone(err) {
		return s, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, true
}

// prove lets a destination be known to take marked packets up to a length, and each
// of these TCP services there to take marks.
func (h *pdmHost) prove(t testing.TB, length uint16, destination string, services ...uint16) {
	t.Helper()
	var now uint64
	if err := h.coll.Variables["test_now"].Get(&now); err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddr(destination)
	paths := map[abiMarkPathKey]abiMarkPath{{Remote: to.As16()}: {Shown: length, ShownAt: now, Passed: now}}
	for _, port := range services {
		paths[serviceKey(to, packet.ProtoTCP, port)] = abiMarkPath{Passed: now}
	}
	for key, path := range paths {
		if err := h.pdm.maps["mark_paths"].Put(&key, &path); err != nil {
			t.Fatal(err)
		}
	}
}

// serviceKey is the service of flows whose lower port is this one.
func serviceKey(remote netip.Addr, proto uint8, port uint16) abiMarkPathKey {
	if port >= 32768 { // both may be a client's
		port = 0
	}
	return abiMarkPathKey{Remote: remote.As16(), Proto: proto, Port: datapath.HostPort(port)}
}

// guardPassed is GUARD_PASSED of bpf/mark/abi.h: marked packets are known to arrive.
const guardPassed = 2

// know lets the service of a datagram that leaves be known to take marked packets.
func (h *pdmHost) know(program string, frame []byte) error {
	pkt := packetOf(frame)
	if h.unknown || program != "test_egress" || len(pkt) < 40 || pkt[6] == packet.ProtoTCP {
		return nil
	}
	chain, err := ipv6.Walk(pkt)
	if err != nil || len(pkt) < chain.Upper+6 {
		return nil // it is not marked
	}
	var port uint16
	var path abiMarkPath
	if err := h.coll.Variables["test_now"].Get(&path.Passed); err != nil {
		return err
	}
	if slices.Contains([]uint8{packet.ProtoTCP, packet.ProtoUDP, 33, 132, 136}, chain.Proto) { // DCCP, SCTP, UDP-Lite
		upper := pkt[chain.Upper:]
		port = min(binary.BigEndian.Uint16(upper), binary.BigEndian.Uint16(upper[2:]))
	}
	return h.pdm.maps["mark_paths"].Put(serviceKey(netip.AddrFrom16([16]byte(pkt[24:40])), chain.Proto, port), &path)
}

func (h *pdmHost) states(t testing.TB) (n int) {
	t.Helper()
	if err := h.pdm.reader.each(func(foundState, *abiPdmState) { n++ }); err != nil {
		t.Fatal(err)
	}
	return n
}

// Two hosts and a UDP flow between them.
const (
	hostA, hostB = "2001:db8:a::1", "2001:db8:b::2"
	portA, portB = 40000, 53
)

func aToB() packet.Builder { return packet.Eth().IPv6(hostA, hostB).UDP(portA, portB).Payload(20) }
func bToA() packet.Builder { return packet.Eth().IPv6(hostB, hostA).UDP(portB, portA).Payload(30) }

func udpKey(local, remote string, lport, rport uint16) abiMarkKey {
	return abiMarkKey{
		Local: netip.MustParseAddr(local).As16(), Remote: netip.MustParseAddr(remote).As16(),
		Lport: datapath.HostPort(lport), Rport: datapath.HostPort(rport), Proto: 17,
	}
}

var keyA, keyB = udpKey(hostA, hostB, portA, portB), udpKey(hostB, hostA, portB, portA)

// inserted is what must become of a frame: pdm.Insert is the reference.
func inserted(t testing.TB, frame []byte, o pdm.Option) []byte {
	t.Helper()
	pkt, err := pdm.Insert(frame[etherLen:], o)
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Clone(frame[:etherLen]), pkt...)
}

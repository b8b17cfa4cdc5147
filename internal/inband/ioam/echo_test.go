package ioam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
)

// silentEnd: where the end of a tunnel takes no packets out of it any more and nothing reports that, datagrams go on without
// the outer header, and into the tunnel again when it is back. Requests of other agents to the same end prove nothing.
func (d *domain) silentEnd() {
	for _, name := range []string{"athos", "aramis"} {
		n := d.with[name]
		n.Insertions = slices.Clone(n.Insertions)
		with := *n.Insertions[0].Tunnel
		with.Echo = true
		n.Insertions[0].Tunnel = &with
		d.with[name] = n
	}
	d.insert(1, 1)
	d.tunnelIs("open", true)
	if now := d.datagrams("through the tunnel"); now["inserted"] < 30 {
		d.t.Errorf("with an end: %v", now)
	}
	undo := d.attach("aramis", "to-porthos", d.program(swallowing(addressOf(d.t, d.Host("aramis"), "to-porthos"))), ebpf.AttachTCXIngress, link.Head())
	d.tunnelIs("closed", false)
	if now := d.datagrams("without an end"); now["inserted"] > 0 || now["not_inserted_unproven"] < 30 {
		d.t.Errorf("without an end: %v", now)
	}
	undo()
	d.tunnelIs("open again", true)
	if now := d.datagrams("through the tunnel again"); now["inserted"] < 30 {
		d.t.Errorf("with an end again: %v", now)
	}
	// An end that has no agent for a while reports errors. It is asked all the same.
	end := d.with["aramis"]
	end.Namespaces = slices.Clone(end.Namespaces)
	end.Namespaces[1].Remove = false
	d.must(d.nodes["aramis"].Apply(end))
	d.tunnelIs("reported closed", false)
	if now := d.datagrams("to an end that reports errors"); now["inserted"] > 0 {
		d.t.Errorf("to an end that reports errors: %v", now)
	}
	d.must(d.nodes["aramis"].Apply(d.with["aramis"]))
	d.tunnelIs("open after errors", true)
	if now := d.datagrams("after errors"); now["inserted"] < 30 {
		d.t.Errorf("after errors: %v", now)
	}
	// Another tunnel is not known to have an end because this one has.
	n := d.with["athos"]
	n.Insertions = slices.Clone(n.Insertions)
	other := *n.Insertions[0].Tunnel
	other.Destination = netip.MustParseAddr("2001:db8:dead::1")
	n.Insertions[0].Tunnel = &other
	d.must(d.nodes["athos"].Apply(n))
	if answers, err := d.nodes["athos"].TunnelAnswers(&n.Insertions[0]); answers || err != nil {
		d.t.Errorf("the end of a new tunnel has answered: %t, %v", answers, err)
	}
}

// tunnelIs waits until the router in front of the tunnel knows of its end, or of none.
func (d *domain) tunnelIs(what string, open bool) {
	d.t.Helper()
	await.Success(d.t, func() error {
		answers, err := d.nodes["athos"].TunnelAnswers(&d.with["athos"].Insertions[0])
		if err != nil || answers != open {
			return errors.Join(err, fmt.Errorf("the tunnel is not %s", what))
		}
		return nil
	})
}

// datagrams sends some through the chain, of which none may be lost, and returns what the router in front of the tunnel did.
func (d *domain) datagrams(what string) tally {
	d.t.Helper()
	beta := d.Host("beta")
	before := d.countsOf(d.nodes["athos"])
	u, err := traffic.Datagrams(d.t.Context(), d.Host("alpha"), beta, traffic.DatagramConfig{To: netip.AddrPortFrom(beta.Addr6(), 9), Count: 30, Size: 200, Flows: 2})
	if err != nil || u.Distinct != 30 {
		d.t.Errorf("%s: %d datagrams of 30 arrived, %v", what, u.Distinct, err)
	}
	return d.countsOf(d.nodes["athos"]).since(before)
}

// swallowing drops packets with a Hop-by-Hop header to an address: those that a tunnel brings.
func swallowing(address string) asm.Instructions {
	const next, destination = 14 + 6, 14 + 24
	to := netip.MustParseAddr(address).As16()
	code := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.LoadAbs(next, asm.Byte), asm.JNE.Imm(asm.R0, 0, "pass")}
	for i := 0; i < len(to); i += 4 {
		code = append(code,
			asm.LoadAbs(int32(destination+i), asm.Word),
			asm.JNE.Imm32(asm.R0, int32(binary.BigEndian.Uint32(to[i:])), "pass"))
	}
	return append(code,
		asm.Mov.Imm(asm.R0, 2), asm.Return(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), asm.Return())
}

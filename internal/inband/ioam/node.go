package ioam

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/wire/ioam"
)

// Sizes of the tables in the kernel.
const (
	copies     = uint32(abiIoamSizeIOAM_COPIES)
	slots      = uint32(abiIoamSizeIOAM_NAMESPACES)
	maxSchemas = uint32(abiIoamSizeIOAM_SCHEMAS)

	// MaxNamespaces is how many namespaces a node knows, besides namespace 0.
	MaxNamespaces = 31
	// MaxTunnelsFrom is how many prefixes Node.TunnelsFrom may have.
	MaxTunnelsFrom = int(abiIoamSizeIOAM_ENDS)
	// MaxSchemaData is how many bytes of a schema fit an option.
	MaxSchemaData = int(abiIoamSizeIOAM_SCHEMA_MAX)
)

// Role is what an interface is to a namespace.
type Role uint8

// The roles.
const (
	RoleNone    Role = 0
	RoleIngress      = Role(abiIoamRoleIOAM_ROLE_INGRESS)
	RoleEgress       = Role(abiIoamRoleIOAM_ROLE_EGRESS)
	RoleBoth         = RoleIngress | RoleEgress
)

// Node describes the node. The zero value has no interface.
type Node struct {
	ID         uint32 // 24 bits; ioam.Unavailable24: none
	WideID     uint64 // 56 bits; ioam.Unavailable56: none
	Interfaces []Interface
	Namespaces []Namespace
	Insertions []Insertion
	// ClosedDomain allows insertion into forwarded packets without an outer header.
	ClosedDomain bool
	Direct       DirectExport
	Loopback     Loopback
	// TunnelsFrom is who may send outer headers that are removed with their options; empty: everybody.
	TunnelsFrom []netip.Prefix
}

// Interface is one of the node's.
type Interface struct {
	Name       string
	ID         uint16 // ioam.Unavailable16: none
	WideID     uint32 // ioam.Unavailable32: none
	Role       Role
	Exceptions map[uint16]Role // by namespace
}

// Namespace is one that the node knows.
type Namespace struct {
	ID       uint16
	Data     uint32
	WideData uint64
	Schema   *ioam.Snapshot // nil: none
	Remove   bool           // options are removed from packets that arrive
	Proof    *Proof         // nil: none
	// Incremental traces grow by the node's data; else they pass as they are.
	Incremental bool
}

// interfaceNamed is the interface of the node with this name; nil: it is none of them.
func (n *Node) interfaceNamed(name string) *Interface {
	i := slices.IndexFunc(n.Interfaces, func(i Interface) bool { return i.Name == name })
	if i < 0 {
		return nil
	}
	return &n.Interfaces[i]
}

// port is an interface as the programs see it.
func (n *Node) port(name string) (p abiIoamPort) {
	i := n.interfaceNamed(name)
	if i == nil {
		return abiIoamPort{Id: ioam.Unavailable16, Wide: ioam.Unavailable32}
	}
	p = abiIoamPort{Id: i.ID, Wide: i.WideID, Role: uint8(i.Role)}
	if len(i.Exceptions) > 0 {
		p.Exceptions = 1
	}
	p.Own, p.Forwarded = n.inserts(i)
	return p
}

// known are the namespaces with namespace 0, which every node knows (RFC 9197 section 4.3).
func (n *Node) known() []Namespace {
	if slices.ContainsFunc(n.Namespaces, func(ns Namespace) bool { return ns.ID == 0 }) {
		return n.Namespaces
	}
	return append([]Namespace{{Data: ioam.Unavailable32, WideData: ioam.Unavailable64}}, n.Namespaces...)
}

// port is an interface of this namespace, with what its border does.
func (r *Registrar) port(i flow.Iface, name string, n *Node) abiIoamPort {
	p := n.port(name)
	p.Border = r.borderOf(i, name, n)
	return p
}

// slotOf is the slot of a namespace, as ioam_namespace() in bpf/ioam/node.h.
func slotOf(id uint16, factor uint32) uint32 {
	return uint32(id) * factor >> (32 - abiIoamSizeIOAM_NAMESPACE_SHIFT)
}

// factorFor returns a factor with which each namespace has a slot of its own. One in
// seven does for the most namespaces there may be.
func factorFor(list []Namespace) (uint32, error) {
	for range 10000 {
		factor, taken := rand.Uint32()|1, map[uint32]bool{}
		for _, ns := range list {
			taken[slotOf(ns.ID, factor)] = true
		}
		if len(taken) == len(list) {
			return factor, nil
		}
	}
	return 0, fmt.Errorf("no table for %d namespaces", len(list))
}

// apply writes the copy of the node that is not in use, and turns to it.
func (r *Registrar) apply(n Node) error {
	known := n.known()
	factor, err := factorFor(known)
	if err != nil {
		return err
	}
	next := 1 - r.control.Copy
	if err := r.writeNamespaces(known, next, factor); err != nil {
		return fmt.Errorf("writing the namespaces of the IOAM node: %w", err)
	}
	keep, err := r.writeInsertions(n, next)
	if err != nil {
		return err
	}
	for i, name := range r.ifaces {
		value := abiIoamIface{}
		value.Copy[r.control.Copy], value.Copy[next] = r.port(i, name, &r.node), r.port(i, name, &n)
		if err := r.exceptions(i, name, next, n); err != nil {
			return err
		}
		if err := r.maps["ioam_ifaces"].Put(uint32(i), value); err != nil {
			return fmt.Errorf("registering %s with the IOAM node: %w", name, err)
		}
	}
	r.generation++
	control := r.control
	control.Reserved = uint32(n.Reserve())
	control.DirectEvery, control.DirectRate = n.Direct.Every, n.Direct.Rate
	control.LoopbackEvery, control.LoopbackRate = n.Loopback.Every, n.Loopback.Rate
	r.forgetAnswers(&control, &n, keep)
	control.Node[next] = abiIoamNode{Id: n.ID, Wide: n.WideID, Hash: factor}
	control.Insertions[next], control.Generation[next], control.Removes[next] = uint32(len(n.Insertions)), r.generation, 0
	if err := control.Node[next].setEnds(n.TunnelsFrom); err != nil {
		return err
	}
	if slices.ContainsFunc(known, func(ns Namespace) bool { return ns.Remove }) {
		control.Removes[next] = 1
	}
	if err := r.publish(&control); err != nil {
		return err
	}
	control.Copy = next
	if err := r.publish(&control); err != nil {
		return err
	}
	r.node, r.kept = n, keep
	r.followTunnels(&n)
	return r.core.Wait()
}

// setEnds writes who may send outer headers.
func (c *abiIoamNode) setEnds(from []netip.Prefix) error {
	if len(from) > MaxTunnelsFrom {
		return fmt.Errorf("%d prefixes of tunnels; at most %d", len(from), MaxTunnelsFrom)
	}
	c.Ends = uint32(len(from))
	for i, p := range from {
		address, mask := p.Masked().Addr().As16(), net.CIDRMask(p.Bits(), 128)
		for word := range c.End[i].Address {
			c.End[i].Address[word] = binary.NativeEndian.Uint64(address[8*word:])
			c.End[i].Mask[word] = binary.NativeEndian.Uint64(mask[8*word:])
		}
	}
	return nil
}

// publish makes a control block visible to the programs.
func (r *Registrar) publish(c *abiIoamControl) error {
	c.Wall = wallOffset(r.cfg.Time)
	if err := r.maps[".data.ioam"].Put(uint32(0), c); err != nil {
		return fmt.Errorf("turning to the new IOAM node: %w", err)
	}
	r.control = *c
	return nil
}

// writeNamespaces fills all slots of a copy.
func (r *Registrar) writeNamespaces(known []Namespace, which, factor uint32) error {
	table := make([]abiIoamNamespace, slots)
	schemas := uint32(0)
	for _, ns := range known {
		slot := abiIoamNamespace{Id: ns.ID, Known: 1, Data: ns.Data, Wide: ns.WideData, SchemaHead: ioam.NoSchema, Snapshot: 1}
		if ns.Remove {
			slot.Remove = 1
		}
		if s := ns.Schema; s != nil {
			index := which*maxSchemas + schemas
			schemas++
			value := abiIoamSchema{}
			copy(value.Data[:], s.Data)
			if err := r.maps["ioam_schemas"].Put(index, value); err != nil {
				return err
			}
			words := uint32(len(s.Data) / 4)
			slot.SchemaHead, slot.Snapshot, slot.Schema = words<<24|s.Schema, uint8(1+words), uint8(index)
			slot.SchemaSum = sum16(s.Data)
		}
		if ns.Incremental {
			slot.Incremental = 1
		}
		if ns.Proof != nil {
			number := (&Node{Namespaces: known}).proofNumber(ns.ID)
			if err := r.maps["ioam_proofs"].Put(which*maxProofs+uint32(number-1), ns.Proof.compile()); err != nil {
				return err
			}
			slot.Proof = uint8(which*maxProofs) + number
		}
		table[slotOf(ns.ID, factor)] = slot
	}
	for i, slot := range table {
		if err := r.maps["ioam_namespaces"].Put(which*slots+uint32(i), slot); err != nil {
			return err
		}
	}
	return nil
}

// exceptions writes the roles that an interface has for single namespaces into a copy.
func (r *Registrar) exceptions(i flow.Iface, name string, which uint32, n Node) error {
	key := abiIoamRoleKey{}
	var old []abiIoamRoleKey
	var role uint32
	for all := r.maps["ioam_roles"].Iterate(); all.Next(&key, &role); {
		if key.Iface == uint32(i) && uint32(key.Copy) == which {
			old = append(old, key)
		}
	}
	for _, key := range old {
		if err := r.maps["ioam_roles"].Delete(key); err != nil {
			return fmt.Errorf("removing a role of %s: %w", name, err)
		}
	}
	if one := n.interfaceNamed(name); one != nil {
		for ns, role := range one.Exceptions {
			key := abiIoamRoleKey{Iface: uint32(i), Space: ns, Copy: uint16(which)}
			if err := r.maps["ioam_roles"].Put(key, uint32(role)); err != nil {
				return fmt.Errorf("setting the role of %s for namespace %d: %w", name, ns, err)
			}
		}
	}
	return nil
}

// sum16 is the ones' complement sum of 16-bit words.
func sum16(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return uint16(sum % 0xffff)
}

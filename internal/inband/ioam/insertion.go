package ioam

import (
	"fmt"
	"net/netip"

	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// Limits of what is inserted.
const (
	MaxInsertions = int(abiIoamInsertionSizeIOAM_INSERTIONS)
	MaxOptions    = int(abiIoamInsertionSizeIOAM_ADDED_MAX)
	// MaxBlock is how many bytes the options of one header take, with the header.
	MaxBlock = int(abiIoamInsertionSizeIOAM_BLOCK_MAX)
	// MaxOf bounds k of n packets.
	MaxOf = 1_000_000
)

// Insertion is what is put into packets that leave and that a policy names.
type Insertion struct {
	Name     string
	Policy   policy.Policy // For has no meaning: an insertion does not expire
	Take, Of uint32        // in so many of so many packets
	Tunnel   *Tunnel       // nil: inline
	// Options are prototypes: a trace without data, a type of edge-to-edge fields.
	Options []ioam.Body
}

// Tunnel has the addresses of an outer header.
type Tunnel struct {
	Source, Destination netip.Addr
	// Echo: packets that nobody acknowledges are put into it only while its end answers echo requests through it.
	Echo bool
}

// blocks are the protocol numbers of the headers that hold options, by template.
var blocks = [2]uint8{ipv6.HopByHop, ipv6.Destination}

// block holds the options of one header.
type block struct {
	template []byte
	added    []abiIoamAdded
	grows    int // bytes by which nodes on the path extend it at most
}

// sizes are the bytes of the block as a header of its own, and behind the options of another one.
func (b *block) sizes() (header, appended int) {
	n := len(b.template)
	if n == 0 {
		return 0, 0
	}
	return (n + 7) &^ 7, (n - head + 7) &^ 7
}

const head = int(abiIoamInsertionSizeIOAM_BLOCK_HEAD)

// Size is by how much a packet grows at most, also where nodes on the path extend incremental traces.
func (in *Insertion) Size() int {
	size := 0
	if in.Tunnel != nil {
		size = ipv6Header
	}
	for _, header := range blocks {
		options := 0
		for _, body := range in.Options {
			if body.Kind().Header() == header {
				options += len(body.AppendTo(nil)) + optionHeader
			}
			if t, ok := body.(*ioam.Trace); ok && t.Incremental && header == ipv6.HopByHop {
				options += grows(t)
			}
		}
		if options > 0 {
			size += (head + options + 7) &^ 7
		}
	}
	return size
}

// grows is by how much a packet grows at most where nodes extend a trace: options behind it keep their alignment.
func grows(t *ioam.Trace) int { return (4*int(t.Remaining) + 7) &^ 7 }

// optionHeader is in front of a body: Option Type, Opt Data Len, Reserved, IOAM-Opt-Type.
const optionHeader = 4

const ipv6Header = 40

// blocks encodes the options, with the data of the node in traces.
func (in *Insertion) blocks(n *Node) (out [2]block) {
	for i, header := range blocks {
		for _, body := range in.Options {
			if body.Kind().Header() != header {
				continue
			}
			if out[i].template == nil {
				out[i].template = []byte{0, 0, ipv6.PadN, 0}
			}
			out[i].add(n, body)
		}
	}
	return out
}

// add appends an option.
func (b *block) add(n *Node, body ioam.Body) {
	option, err := ioam.AppendOption(nil, body)
	if err != nil {
		panic(err) // bodies were made by package wire/ioam, within its limits
	}
	at := len(b.template)
	added := abiIoamAdded{At: uint16(at), Type: uint8(body.Kind())}
	switch body := body.(type) {
	case *ioam.Trace:
		added.Fields = uint32(body.Type) << 8
		option = n.first(body, option, at, &added)
		if filled, _ := ioam.DecodeOption(option); body.Incremental {
			b.grows += grows(filled.(*ioam.Trace))
		}
	case *ioam.E2E:
		added.Fields = uint32(body.Type)
	case *ioam.DEX:
		added.Fields = uint32(body.Extension)
	case *ioam.POT:
		added.Proof = n.proofNumber(body.Namespace)
	}
	b.template = append(b.template, option...)
	b.added = append(b.added, added)
}

// first adds the node's data to a trace, as its first node. Programs write what depends on the packet over them.
func (n *Node) first(t *ioam.Trace, option []byte, at int, added *abiIoamAdded) []byte {
	filled, verdict := n.reference().Update(option, at, ioam.NewPassage(0))
	if verdict != ioam.Filled {
		return filled
	}
	data := len(option) - len(t.Data)
	size := len(filled) - len(option)
	if !t.Incremental {
		ns, _ := n.namespace(t.Namespace)
		size = t.Type.NodeSize(schemaSize(ns.Schema))
		data += len(t.Data) - size
	}
	if size > 0 {
		added.Data, added.Bytes, added.Sum = uint16(at+data), uint16(size), sum16(filled[data:data+size])
	}
	return filled
}

func schemaSize(s *ioam.Snapshot) int {
	if s == nil {
		return 0
	}
	return len(s.Data)
}

// reference is the same node of package wire/ioam.
func (n *Node) reference() *ioam.Node {
	out := &ioam.Node{ID: n.ID, IDWide: n.WideID, Namespaces: map[uint16]ioam.Namespace{}, ChecksumNeutral: true}
	for _, ns := range n.known() {
		out.Namespaces[ns.ID] = ioam.Namespace{Data: ns.Data, DataWide: ns.WideData, Schema: ns.Schema}
	}
	return out
}

func (n *Node) namespace(id uint16) (Namespace, bool) {
	for _, ns := range n.known() {
		if ns.ID == id {
			return ns, true
		}
	}
	return Namespace{}, false
}

// Namespace is that of the first option.
func (in *Insertion) Namespace() uint16 {
	if len(in.Options) == 0 {
		return 0
	}
	return Space(in.Options[0])
}

// Space is the namespace of an option.
func Space(body ioam.Body) uint16 {
	switch body := body.(type) {
	case *ioam.Trace:
		return body.Namespace
	case *ioam.E2E:
		return body.Namespace
	case *ioam.DEX:
		return body.Namespace
	case *ioam.POT:
		return body.Namespace
	}
	return 0
}

// sequences reports whether an option has sequence numbers or a flow id.
func (in *Insertion) sequences() bool {
	for _, body := range in.Options {
		switch body := body.(type) {
		case *ioam.E2E:
			if body.Type&(ioam.E2ESequence64|ioam.E2ESequence32) != 0 {
				return true
			}
		case *ioam.DEX:
			if body.Extension != 0 {
				return true
			}
		}
	}
	return false
}

// AppliesTo reports whether packets that leave by an interface of the node get the insertion: the
// interface has the role for all its namespaces.
func (in *Insertion) AppliesTo(i *Interface) bool {
	if !in.Policy.Applies(i.Name) {
		return false
	}
	for _, body := range in.Options {
		role, exception := i.Exceptions[Space(body)]
		if !exception {
			role = i.Role
		}
		// Copies of packets come back by the interface.
		needs := RoleEgress
		if t, ok := body.(*ioam.Trace); ok && t.Flags&ioam.Loopback != 0 {
			needs = RoleBoth
		}
		if role&needs != needs {
			return false
		}
	}
	return true
}

// compile is the insertion as the programs see it, at an index of all of both copies.
func (in *Insertion) compile(n *Node, index uint32, k kept) (abiIoamInsertion, [2]abiIoamTemplate, error) {
	out := abiIoamInsertion{
		Template: uint16(index * 2), Space: in.Namespace(), Flags: uint8(abiIoamInsertionFlagsIOAM_INSERTION_USED),
		Id: k.id, Slot: k.slot, Take: in.Take, Of: in.Of,
	}
	var templates [2]abiIoamTemplate
	if in.Take < in.Of {
		out.Flags |= uint8(abiIoamInsertionFlagsIOAM_INSERTION_PART)
	}
	if n.ClosedDomain {
		out.Flags |= uint8(abiIoamInsertionFlagsIOAM_INSERTION_CLOSED)
	}
	if in.Loops() {
		out.Flags |= uint8(abiIoamInsertionFlagsIOAM_INSERTION_LOOPBACK)
	}
	if in.sequences() {
		out.Flags |= uint8(abiIoamInsertionFlagsIOAM_INSERTION_SEQUENCE)
	}
	if t := in.Tunnel; t != nil {
		out.Mode = uint8(abiIoamModeIOAM_IP6IP6)
		out.Source, out.Destination = t.Source.As16(), t.Destination.As16()
		if t.Echo {
			out.Flags |= uint8(abiIoamInsertionFlagsIOAM_INSERTION_ECHO)
		}
	}
	if len(in.Options) > MaxOptions {
		return out, templates, fmt.Errorf("%d options; at most %d", len(in.Options), MaxOptions)
	}
	options := 0
	for i, b := range in.blocks(n) {
		header, appended := b.sizes()
		if max(header, appended) > MaxBlock {
			return out, templates, fmt.Errorf("%d bytes of options in one header; at most %d", header, MaxBlock)
		}
		out.Bytes[2*i], out.Bytes[2*i+1] = uint16(header), uint16(appended)
		out.Options[i] = uint8(len(b.added))
		out.Grows += uint32(b.grows)
		for _, added := range b.added {
			if added.Proof > 0 {
				added.Proof += uint8(index / insertions * maxProofs)
			}
			out.Option[options] = added
			options++
		}
		if len(b.template) > 0 {
			b.template[1] = uint8(header/8 - 1)
		}
		end := copy(templates[i].Data[:], b.template)
		copy(templates[i].Data[end:], []byte{ipv6.PadN, 2, 0, 0})
	}
	return out, templates, nil
}

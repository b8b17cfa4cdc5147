package ioam

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/order"
)

// Sizes of the tables of insertions.
const (
	insertions     = uint32(abiIoamInsertionSizeIOAM_INSERTIONS)
	insertionSlots = uint32(abiIoamInsertionSizeIOAM_INSERTION_SLOTS)
	answerSlots    = uint32(abiIoamInsertionSizeIOAM_ANSWERS)
	// maxSequences is how many pairs of addresses, or flows, have sequence numbers at a time.
	maxSequences = 16384
	// prefixesEach is how many prefixes an insertion has at most: its own, and those it does not mean.
	prefixesEach = 1 + 2
)

// insertionSizes are the sizes of the maps of insertions.
var insertionSizes = map[string]uint32{
	"ioam_insertions": copies * insertions, "ioam_templates": copies * insertions * 2, "ioam_rules": copies * insertions,
	"ioam_prefixes": 2 * copies * insertions * prefixesEach, "ioam_answers": answerSlots, "ioam_insertion_states": insertionSlots,
	"ioam_sequences": maxSequences,
}

// kept is what stays the same for an insertion across changes of the node.
type kept struct{ id, slot uint32 }

// Identity is equal for insertions that are the same to a user, whatever else of the node changes.
func (in *Insertion) Identity() string {
	if in.Name != "" {
		return in.Name
	}
	p := in.Policy
	words := []string{p.To.String()}
	for _, proto := range p.Protos {
		words = append(words, fmt.Sprintf("proto %d", proto))
	}
	for _, ports := range p.Ports {
		words = append(words, "port "+ports.String())
	}
	if p.Interface != "" && p.Interface != "*" {
		words = append(words, "interface "+p.Interface)
	}
	return strings.Join(words, " ")
}

// ordered are the insertions in the order in which the first that names a packet wins.
func ordered(list []Insertion) []Insertion {
	list = slices.Clone(list)
	order.By(list, func(a, b Insertion) int { return cmp.Compare(b.Policy.To.Bits(), a.Policy.To.Bits()) })
	return list
}

// keep finds ids and slots: those of insertions that stay, and free ones, cleared, for new ones.
func (r *Registrar) keep(list []Insertion) (map[string]kept, error) {
	out, used := map[string]kept{}, map[uint32]bool{}
	for _, k := range r.kept {
		used[k.slot] = true
	}
	slot := uint32(0)
	for _, in := range list {
		id := in.Identity()
		if _, twice := out[id]; twice {
			return nil, fmt.Errorf("two insertions %q", id)
		}
		k, stays := r.kept[id]
		if !stays {
			for used[slot] {
				slot++
			}
			used[slot] = true
			r.lastInsertion++
			k = kept{id: r.lastInsertion, slot: slot}
			zero := make([]abiIoamInsertionState, ebpf.MustPossibleCPU())
			if err := r.maps["ioam_insertion_states"].Put(slot, zero); err != nil {
				return nil, fmt.Errorf("clearing the counts of insertion %s: %w", id, err)
			}
		}
		out[id] = k
	}
	return out, nil
}

// writeInsertions fills a copy, and returns what stays the same for each of them.
func (r *Registrar) writeInsertions(n Node, which uint32) (map[string]kept, error) {
	list := ordered(n.Insertions)
	if len(list) > MaxInsertions {
		return nil, fmt.Errorf("%d insertions; at most %d", len(list), MaxInsertions)
	}
	keep, err := r.keep(list)
	if err != nil {
		return nil, err
	}
	if err := r.writePrefixes(list, which); err != nil {
		return nil, err
	}
	for i := range insertions {
		index := which*insertions + i
		value := abiIoamInsertion{}
		if int(i) < len(list) {
			in := &list[i]
			if value, err = r.writeInsertion(&n, in, index, keep[in.Identity()]); err != nil {
				return nil, fmt.Errorf("insertion %s: %w", in.Identity(), err)
			}
		}
		if err := r.maps["ioam_insertions"].Put(index, value); err != nil {
			return nil, fmt.Errorf("writing insertion %d: %w", i, err)
		}
	}
	return keep, nil
}

func (r *Registrar) writeInsertion(n *Node, in *Insertion, index uint32, k kept) (abiIoamInsertion, error) {
	value, templates, err := in.compile(n, index, k)
	if err != nil {
		return value, err
	}
	for i, t := range templates {
		if err := r.maps["ioam_templates"].Put(uint32(value.Template)+uint32(i), t); err != nil {
			return value, fmt.Errorf("writing its options: %w", err)
		}
	}
	rule := abiPolicyRule{Until: ^uint64(0), Protos: in.Policy.ProtoBits(), PortsLen: uint32(len(in.Policy.Ports))}
	for i, p := range in.Policy.Ports {
		rule.Ports[i] = abiPolicyPorts{From: p.From, To: p.To}
	}
	if err := r.maps["ioam_rules"].Put(index, rule); err != nil {
		return value, fmt.Errorf("writing its policy: %w", err)
	}
	return value, nil
}

// writePrefixes replaces the prefixes of a copy.
func (r *Registrar) writePrefixes(list []Insertion, which uint32) error {
	if err := r.clearPrefixes(which); err != nil {
		return err
	}
	var to []netip.Prefix
	for _, in := range list {
		to = append(to, in.Policy.To)
	}
	for prefix, mask := range policy.Table(to) {
		key := abiPolicyPrefix{Bits: 32 + uint32(prefix.Bits()), Set: which, Addr: prefix.Addr().As16()}
		if err := r.maps["ioam_prefixes"].Put(key, abiPolicyMask{Named: mask.Named, Held: mask.Held}); err != nil {
			return fmt.Errorf("insertions to %s: %w", prefix, err)
		}
	}
	return nil
}

func (r *Registrar) clearPrefixes(which uint32) error {
	var key abiPolicyPrefix
	var mask abiPolicyMask
	var old []abiPolicyPrefix
	all := r.maps["ioam_prefixes"].Iterate()
	for all.Next(&key, &mask) {
		if key.Set == which {
			old = append(old, key)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("reading old prefixes: %w", err)
	}
	for _, key := range old {
		if err := r.maps["ioam_prefixes"].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("removing old prefixes: %w", err)
		}
	}
	return nil
}

// inserts has a bit for each insertion that applies to packets that leave by an interface.
func (n *Node) inserts(i *Interface) (own, forwarded uint32) {
	for k, in := range ordered(n.Insertions) {
		if !in.AppliesTo(i) {
			continue
		}
		own |= 1 << k
		// Copies go to the source, which only this node may be (RFC 9322 section 4.2).
		if in.Tunnel != nil || n.ClosedDomain && !in.Loops() {
			forwarded |= 1 << k
		}
	}
	return own, forwarded
}

// InsertionCount is what happened to the packets of an insertion since it exists.
type InsertionCount struct {
	Named    uint64 // packets that its policy names, GSO bursts as one
	Chosen   uint64 // of these, the ones to insert into
	Inserted uint64 // packets on the wire with the options
}

// InsertionCounts are the counts of all insertions of the node, in its order.
func (r *Registrar) InsertionCounts() (out []InsertionCount, err error) {
	err = r.do(func() error {
		for i := range r.node.Insertions {
			k := r.kept[r.node.Insertions[i].Identity()]
			sum, err := datapath.Total[abiIoamInsertionState](r.maps["ioam_insertion_states"], k.slot)
			if err != nil {
				return fmt.Errorf("reading the counts of insertions: %w", err)
			}
			out = append(out, InsertionCount{Named: sum.Named, Chosen: sum.Chosen, Inserted: sum.Inserted})
		}
		return nil
	})
	return out, err
}

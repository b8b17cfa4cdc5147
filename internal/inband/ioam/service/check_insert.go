package service

import (
	"cmp"
	"fmt"
	"net"
	"slices"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/wire/ioam"
)

// minMTU is the least that IPv6 takes (RFC 8200 section 5): what is left of an MTU when headroom is reserved.
const minMTU = 1280

// mtuOf is the MTU of an interface; ok is false where there is none of that name yet.
var mtuOf = func(name string) (mtu int, ok bool) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0, false
	}
	return i.MTU, true
}

// dexLimit is the largest share of packets with direct export (RFC 9326 section 6).
const dexLimit = 100

func (k *checker) insertions(c *Config) {
	if n := len(c.Insert); n > inbandioam.MaxInsertions {
		k.complain("ioam.insert", fmt.Sprintf("%d entries", n), fmt.Sprintf("at most %d", inbandioam.MaxInsertions))
	}
	for n := range c.Insert {
		i, key := &c.Insert[n], fmt.Sprintf("ioam.insert[%d]", n)
		in, err := i.insertion()
		switch {
		case i.To == "":
			k.complain(key+".to", "an insertion without a destination", "write to: ::/0 for all")
		case err != nil:
			k.complain(key, err.Error(), "")
		default:
			k.unique(key, "insertion "+in.Identity())
		}
		k.tunnel(key, i)
		for _, entry := range sortedEntries(i.entries(key)) {
			k.option(c, entry.key, entry.option, &in)
		}
		k.sizes(key, c, &in)
		k.places(key, c, i, &in)
	}
}

type entry struct {
	key    string
	option *OptionConfig
}

func sortedEntries(m map[string]*OptionConfig) (out []entry) {
	for key, o := range m {
		out = append(out, entry{key, o})
	}
	order.By(out, func(a, b entry) int { return cmp.Or(len(a.key)-len(b.key), cmp.Compare(a.key, b.key)) })
	return out
}

func (k *checker) tunnel(key string, i *InsertConfig) {
	switch {
	case i.Mode == "ip6ip6" && i.TunnelTo == "":
		k.complain(key, "ip6ip6 without tunnel_to", "write the address of the node that removes the outer header")
	case i.Mode == "ip6ip6" && i.TunnelFrom == "":
		k.complain(key, "ip6ip6 without tunnel_from", "write an address of this node")
	case i.Mode == "inline" && (i.TunnelTo != "" || i.TunnelFrom != ""):
		k.complain(key, "addresses of a tunnel, and mode inline", "write mode: ip6ip6, or remove them")
	}
}

// option checks one entry.
func (k *checker) option(c *Config, key string, o *OptionConfig, in *inbandioam.Insertion) {
	if !c.knows(o.Namespace) {
		k.complain(key+".namespace", fmt.Sprintf("no namespace %d", o.Namespace), "list it under ioam.namespaces")
	}
	if len(o.Trace) == 0 && len(o.E2E) == 0 && len(o.DEX) == 0 && !o.POT {
		k.complain(key, "nothing to insert", "write trace, e2e, pot or dex")
	}
	k.trace(c, key, o)
	if o.Loopback {
		k.loopback(c, key, o, in)
	}
	if e := o.E2E; slices.Contains(e, "sequence_32") && slices.Contains(e, "sequence_64") {
		k.complain(key+".e2e", "two sequence numbers", "write sequence_64 or sequence_32")
	}
	if len(o.DEX) > 0 && in.Take*dexLimit > in.Of {
		k.complain(key+".dex", fmt.Sprintf("direct export from %d of %d packets", in.Take, in.Of), "at most 1 of 100 (RFC 9326); write every: 100, or more")
	}
	if o.POT && !slices.ContainsFunc(c.Namespaces, func(ns NamespaceConfig) bool { return ns.ID == o.Namespace && ns.Proof.LPC != "" }) {
		k.complain(key+".pot", fmt.Sprintf("no share of the secret for namespace %d", o.Namespace), "write proof: {prime, share, poly2, lpc} in ioam.namespaces")
	}
}

func (k *checker) trace(c *Config, key string, o *OptionConfig) {
	needs := traceType(o.Trace).NodeSize(0)
	switch {
	case len(o.Trace) == 0 && (o.Size > 0 || o.Incremental):
		k.complain(key, "size of a trace without fields", "write trace: with its fields")
	case len(o.Trace) == 0:
	case o.Size == 0:
		k.complain(key, "a trace without space", fmt.Sprintf("write size: %d for each node on the path", needs))
	case o.Size%4 != 0 || o.Size > ioam.MaxTraceSpace:
		k.complain(key+".size", fmt.Sprintf("%d bytes", o.Size), fmt.Sprintf("a multiple of 4, at most %d", ioam.MaxTraceSpace))
	case int(o.Size) < needs:
		k.complain(key+".size", fmt.Sprintf("%d bytes, and the data of one node take %d", o.Size, needs), fmt.Sprintf("write %d for each node on the path", needs))
	}
}

// loopbackLimit is the largest share of packets with loopback, unless configured (RFC 9322 section 4.1.1).
const loopbackLimit = 100

func (k *checker) loopback(c *Config, key string, o *OptionConfig, in *inbandioam.Insertion) {
	limit := cmp.Or(c.Loopback.Every, loopbackLimit)
	key += ".loopback"
	switch {
	case traceType(o.Trace) != ioam.LoopbackTraceType || o.Incremental:
		k.complain(key, "loopback of another trace than a pre-allocated one of hop limit and node id", "write trace: [hop_limit_node_id], without incremental (RFC 9322)")
	case c.Node.ID == ioam.Unavailable24:
		k.complain(key, "loopback at a node without id, which could not recognize copies", "write ioam.node.id")
	case uint64(in.Take)*uint64(limit) > uint64(in.Of):
		k.complain(key, fmt.Sprintf("loopback from %d of %d packets", in.Take, in.Of), fmt.Sprintf("at most 1 of %d (ioam.loopback.every); write every: %[1]d, or more", limit))
	}
}

// sizes checks that the options fit a packet, and the MTU of the interfaces.
func (k *checker) sizes(key string, c *Config, in *inbandioam.Insertion) {
	if n := len(in.Options); n > inbandioam.MaxOptions {
		k.complain(key+".options", fmt.Sprintf("%d options", n), fmt.Sprintf("at most %d", inbandioam.MaxOptions))
	}
	size := in.Size()
	if size > inbandioam.MaxBlock {
		k.complain(key, fmt.Sprintf("%d bytes of options", size), fmt.Sprintf("at most %d fit a packet of %d bytes", inbandioam.MaxBlock, minMTU))
		return
	}
	node := c.node()
	for n := range node.Interfaces {
		i := &node.Interfaces[n]
		if mtu, ok := mtuOf(i.Name); ok && in.AppliesTo(i) && mtu-size < minMTU {
			k.complain(key, fmt.Sprintf("%d bytes of options do not fit the MTU of %s, %d bytes", size, i.Name, mtu),
				fmt.Sprintf("%d must be left for packets: raise the MTU to %d, or insert less", minMTU, minMTU+size))
		}
	}
}

// places checks that packets leave somewhere with the insertion.
func (k *checker) places(key string, c *Config, i *InsertConfig, in *inbandioam.Insertion) {
	node := c.node()
	if slices.ContainsFunc(node.Interfaces, func(i inbandioam.Interface) bool { return in.AppliesTo(&i) }) {
		return
	}
	isNode := slices.ContainsFunc(node.Interfaces, func(n inbandioam.Interface) bool { return in.Policy.Applies(n.Name) })
	if !isNode {
		k.complain(key+".interface", "no interface of the node is "+i.Interface, "list it under ioam.interfaces")
		return
	}
	if in.Loops() {
		k.complain(key+".interface", "without role both for the namespace of loopback: "+i.Interface, "write role: both in ioam.interfaces: copies come back there")
		return
	}
	k.complain(key+".interface", "without role egress for the namespaces of all options: "+i.Interface, "write role: egress or both in ioam.interfaces")
}

// headroom is what insertions take of the MTU of an interface.
func (c *Config) headroom(iface string) int {
	if node := c.node(); c.Reserve != string(headroom.None) && node.Inserts(iface) {
		return node.Reserve()
	}
	return 0
}

// checkHeadroom checks that packets fit the MTU with what all stages insert; sizes has checked each
// insertion alone.
func (c *Config) checkHeadroom(whole *config.Config, complain config.Complain) {
	for _, name := range c.names() {
		mtu, ok := mtuOf(name)
		alone, all := c.headroom(name), whole.MTUHeadroom(name)
		if ok && alone > 0 && mtu-alone >= minMTU && mtu-all < minMTU {
			complain("ioam.insert", fmt.Sprintf("%d bytes of options and %d of other stages do not fit the MTU of %s, %d bytes", alone, all-alone, name, mtu),
				fmt.Sprintf("%d must be left for packets: raise the MTU to %d, or insert less", minMTU, minMTU+all))
		}
	}
}

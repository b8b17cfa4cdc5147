package service

import (
	"fmt"
	"strings"

	"github.com/waymark-net/waymark/internal/config"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
)

// checker reports what is impossible in the description of a node.
type checker struct {
	complain config.Complain
	first    map[string]string // key that has a name or an id
}

// check is of the whole section: nothing of it is applied when it complains.
func (c *Config) check(complain config.Complain) {
	k := checker{complain: complain, first: map[string]string{}}
	if !c.on() && (len(c.Namespaces) > 0 || len(c.Schemas) > 0 || len(c.Insert) > 0) {
		complain("ioam", "a node without interfaces", "list them under ioam.interfaces")
	}
	k.fits("ioam.node.wide_id", c.Node.WideID, 56)
	if n := len(c.TunnelsFrom); n > inbandioam.MaxTunnelsFrom {
		complain("ioam.tunnels_from", fmt.Sprintf("%d prefixes", n), fmt.Sprintf("at most %d: write shorter ones", inbandioam.MaxTunnelsFrom))
	}
	k.interfaces(c)
	k.namespaces(c)
	k.schemas(c)
	k.insertions(c)
}

// fits reports a number with more bits than its field.
func (k *checker) fits(key, text string, bits int) {
	if text != "" && number(text, 0)>>bits != 0 {
		k.complain(key, text+" is out of range", fmt.Sprintf("%d bits, at most 0x%x", bits, uint64(1)<<bits-1))
	}
}

// unique reports a second user of what only one may have.
func (k *checker) unique(key, what string) {
	if first, taken := k.first[what]; taken {
		k.complain(key, what+" is given twice", "the first is "+first)
		return
	}
	k.first[what] = key
}

func (k *checker) most(key string, n int) {
	if n > inbandioam.MaxNamespaces {
		k.complain(key, fmt.Sprintf("%d entries", n), fmt.Sprintf("at most %d", inbandioam.MaxNamespaces))
	}
}

func (k *checker) interfaces(c *Config) {
	for n, i := range c.Interfaces {
		key := fmt.Sprintf("ioam.interfaces[%d]", n)
		switch {
		case i.Name == "":
			k.complain(key, "an interface without a name", "write name: as ip -br link prints it")
		case strings.ContainsAny(i.Name, `*?[\`):
			k.complain(key+".name", i.Name+" is a glob", "an interface has an id of its own: write its name")
		default:
			k.unique(key, "interface "+i.Name)
		}
		if i.ID != 0xffff {
			k.unique(key, fmt.Sprintf("interface id %d", i.ID))
		}
		k.fits(key+".wide_id", i.WideID, 32)
		if i.WideID != "" {
			k.unique(key, fmt.Sprintf("wide interface id %d", number(i.WideID, 0)))
		}
		for m, r := range i.Roles {
			k.unique(fmt.Sprintf("%s.roles[%d]", key, m), fmt.Sprintf("role of interface %s for namespace %d", i.Name, r.Namespace))
		}
	}
}

func (k *checker) namespaces(c *Config) {
	k.most("ioam.namespaces", len(c.Namespaces))
	for n, ns := range c.Namespaces {
		key := fmt.Sprintf("ioam.namespaces[%d]", n)
		k.unique(key, fmt.Sprintf("namespace %d", ns.ID))
		k.fits(key+".data", ns.Data, 32)
		if p := ns.Proof; p.Prime != "" && !inbandioam.PrimeForProof(number(p.Prime, 0)) {
			k.complain(key+".proof.prime", p.Prime+" is not an odd prime", "write the prime of the domain")
		} else if p.Prime == "" && (p.LPC != "" || p.Secret != "") {
			k.complain(key+".proof", "proof of transit without a prime", "write the prime of the domain")
		}
		known := ns.Schema == ""
		for _, s := range c.Schemas {
			known = known || uint64(s.ID) == number(ns.Schema, 0)
		}
		if !known {
			k.complain(key+".schema", "no schema "+ns.Schema, "list it under ioam.schemas")
		}
	}
}

func (k *checker) schemas(c *Config) {
	k.most("ioam.schemas", len(c.Schemas))
	for n, s := range c.Schemas {
		key := fmt.Sprintf("ioam.schemas[%d]", n)
		k.unique(key, fmt.Sprintf("schema %d", s.ID))
		data, err := s.bytes()
		if err != nil {
			k.complain(key+".data", err.Error(), "write pairs of digits after 0x, or text")
		} else if len(data) > inbandioam.MaxSchemaData {
			k.complain(key+".data", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d fit an option", inbandioam.MaxSchemaData))
		}
	}
}

package engine

import (
	"fmt"
	"path"
	"slices"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// IfaceRow is the row of packets that an interface received.
func (t *Table) IfaceRow(name string) (uint16, error) {
	c := &compiler{Table: t}
	return t.row(c.where(func(m *rules.Match) bool {
		return len(m.Ifaces) == 0 || slices.ContainsFunc(m.Ifaces, func(glob string) bool {
			is, _ := path.Match(glob, name) // an invalid pattern is refused when it is read
			return is
		})
	}))
}

// bucketOf is the bucket of an interface, as in gate_find_iface().
func bucketOf(iface uint32) uint32 { return iface * 0x9e3779b1 >> 23 }

// AddIface enters an interface into the copy of the table, or changes its name. hooks are
// those where its packets meet the rules, answers what SYN-ACKs say there.
func (t *Table) AddIface(c *Control, iface uint32, name string, hooks, answers uint8) error {
	row, err := t.IfaceRow(name)
	if err != nil {
		return err
	}
	bucket := &c.Iface[t.options.Copy][bucketOf(iface)]
	for _, known := range []uint32{iface, 0} {
		if i := slices.IndexFunc(bucket[:], func(one Iface) bool { return one.Iface == known }); i >= 0 {
			bucket[i] = Iface{Iface: iface, Row: row, Hooks: hooks, Answers: answers}
			return nil
		}
	}
	return fmt.Errorf("no space for another interface: some %d fit", len(c.Iface[0])*len(bucket)/2)
}

// RemoveIface takes an interface out of both copies.
func RemoveIface(c *Control, iface uint32) {
	for which := range c.Iface {
		for i, one := range c.Iface[which][bucketOf(iface)] {
			if one.Iface == iface {
				c.Iface[which][bucketOf(iface)][i] = Iface{}
			}
		}
	}
}

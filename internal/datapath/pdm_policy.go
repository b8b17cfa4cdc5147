package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
)

// PolicyStatus is a policy in force.
type PolicyStatus struct {
	policy.Policy
	Until time.Time // it ends by itself
}

// Addresses that a policy means only when its own prefix is among them: ::/0
// does not name multicast.
var special = []netip.Prefix{netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8")}

// setPolicies fills the set that does not count, and then turns to it. wait
// returns when no program uses the old set any more.
func (p *marker) setPolicies(policies []policy.Policy, wait func() error) error {
	if err := policy.CheckAll(policies); err != nil {
		return fmt.Errorf("pdm policies: %w", err)
	}
	now, err := clockGettime(unix.CLOCK_MONOTONIC)
	if err != nil {
		return err
	}
	next := p.generation + 1
	if err := p.fillSet(next&1, policies, uint64(now)); err != nil {
		return errors.Join(err, p.clearSet(next&1))
	}
	if err := p.maps[".data.policy"].Update(uint32(0), next, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("turning to the new policies: %w", err)
	}
	wall := time.Now()
	p.generation = next
	p.policies = nil
	for _, one := range policies {
		p.policies = append(p.policies, PolicyStatus{Policy: one, Until: wall.Add(one.For)})
	}
	if err := wait(); err != nil {
		return err
	}
	return p.clearSet(1 - next&1)
}

func (p *marker) fillSet(set uint32, policies []policy.Policy, now uint64) error {
	for i, one := range policies {
		if err := p.maps["policy_rules"].Update(set*policy.Max+uint32(i), ruleOf(one, now), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("policy to %s: %w", one.To, err)
		}
	}
	for prefix, mask := range prefixesOf(policies) {
		key := ingressPolicyPrefix{Bits: 32 + uint32(prefix.Bits()), Set: set, Addr: prefix.Addr().As16()}
		if err := p.maps["policy_prefixes"].Update(&key, &mask, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("policies to %s: %w", prefix, err)
		}
	}
	for iface, here := range p.ifaces {
		if err := p.putIface(set, iface, maskOf(policies, here.name)); err != nil {
			return err
		}
	}
	return nil
}

// ruleOf is what the kernel checks beside the prefix.
func ruleOf(p policy.Policy, now uint64) *ingressPolicyRule {
	r := &ingressPolicyRule{Until: now + uint64(p.For), PortsLen: uint32(len(p.Ports))}
	for n := range 256 {
		if p.Names(uint8(n)) {
			r.Protos[n/64] |= 1 << (n % 64)
		}
	}
	for i, ports := range p.Ports {
		r.Ports[i] = ingressPolicyPorts{From: ports.From, To: ports.To}
	}
	return r
}

// prefixesOf turns policies into a table in which the longest prefix alone tells
// of all policies that cover an address.
func prefixesOf(policies []policy.Policy) map[netip.Prefix]ingressPolicyMask {
	covers := func(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }
	table := map[netip.Prefix]ingressPolicyMask{}
	for _, p := range policies {
		table[p.To] = ingressPolicyMask{}
		for _, s := range special {
			if covers(p.To, s) {
				table[s] = ingressPolicyMask{}
			}
		}
	}
	for prefix := range table {
		var mask ingressPolicyMask
		inside := slices.IndexFunc(special, func(s netip.Prefix) bool { return covers(s, prefix) })
		for i, p := range policies {
			switch {
			case !covers(p.To, prefix):
			case inside < 0 || covers(special[inside], p.To):
				mask.Named |= 1 << i
			default:
				mask.Held |= 1 << i
			}
		}
		table[prefix] = mask
	}
	return table
}

// maskOf has a bit for each policy that applies on an interface.
func maskOf(policies []policy.Policy, name string) uint64 {
	var mask uint64
	for i, p := range policies {
		if p.Applies(name) {
			mask |= 1 << i
		}
	}
	return mask
}

// policyIface is an attached interface with its element in policy_ifaces.
type policyIface struct {
	name string
	ingressPolicyIface
}

// putIface sets what applies on an interface in one set. Interfaces where nothing
// applies have no element.
func (p *marker) putIface(set uint32, iface flow.Iface, mask uint64) error {
	here := p.ifaces[iface]
	if here.Applies[set] == mask {
		return nil
	}
	now := here.ingressPolicyIface
	now.Applies[set] = mask
	var err error
	if now == (ingressPolicyIface{}) {
		err = p.dropIface(iface)
	} else {
		err = p.maps["policy_ifaces"].Update(uint32(iface), &now, ebpf.UpdateAny)
	}
	switch {
	case errors.Is(err, unix.E2BIG):
		return fmt.Errorf("policies of %s: %w: packets are marked on at most %d interfaces: name fewer in pdm.policies", here.name, err, pdmIfaces)
	case err != nil:
		return fmt.Errorf("policies of %s: %w", here.name, err)
	}
	here.ingressPolicyIface = now
	return nil
}

func (p *marker) dropIface(iface flow.Iface) error {
	if err := p.maps["policy_ifaces"].Delete(uint32(iface)); err != nil && !isMissing(err) {
		return err
	}
	return nil
}

// clearSet forgets what the set held.
func (p *marker) clearSet(set uint32) error {
	var prefix ingressPolicyPrefix
	if err := deleteIf(p.maps["policy_prefixes"], &prefix, func() bool { return prefix.Set == set }); err != nil {
		return fmt.Errorf("forgetting old prefixes: %w", err)
	}
	var errs []error
	for iface := range p.ifaces {
		errs = append(errs, p.putIface(set, iface, 0))
	}
	return errors.Join(errs...)
}

// deleteIf deletes the elements whose key, read into key, makes drop true. No
// one else changes the map meanwhile.
func deleteIf[K any](m *ebpf.Map, key *K, drop func() bool) error {
	var all []K
	for err := m.NextKey(nil, key); ; err = m.NextKey(&all[len(all)-1], key) {
		if isMissing(err) {
			break
		}
		if err != nil {
			return err
		}
		all = append(all, *key)
	}
	for _, *key = range all {
		if !drop() {
			continue
		}
		if err := m.Delete(key); err != nil && !isMissing(err) {
			return err
		}
	}
	return nil
}

// attach makes policies apply on an interface, or again when its name changed.
func (p *marker) attach(iface flow.Iface, name string) error {
	var policies []policy.Policy
	for _, s := range p.policies {
		policies = append(policies, s.Policy)
	}
	name = path.Base(name) // without its namespace
	if p.ifaces[iface] == nil {
		p.ifaces[iface] = &policyIface{}
	}
	p.ifaces[iface].name = name
	return p.putIface(p.generation&1, iface, maskOf(policies, name))
}

func (p *marker) detach(iface flow.Iface) error {
	delete(p.ifaces, iface)
	if err := p.dropIface(iface); err != nil {
		return fmt.Errorf("forgetting the policies of interface %d: %w", iface.IfIndex(), err)
	}
	return nil
}

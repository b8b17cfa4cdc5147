package pdm

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
)

// PolicyStatus is a policy in force.
type PolicyStatus struct {
	policy.Policy
	Until time.Time // it ends by itself
}

// setPolicies fills the set that does not count, and then turns to it.
func (m *Marker) setPolicies(policies []policy.Policy) error {
	if err := policy.CheckAll(policies); err != nil {
		return fmt.Errorf("pdm policies: %w", err)
	}
	now, err := datapath.Now()
	if err != nil {
		return err
	}
	next := m.generation + 1
	if err := m.fillSet(next&1, policies, uint64(now.Mono)); err != nil {
		return errors.Join(err, m.clearSet(next&1))
	}
	if err := m.maps[".data.policy"].Update(uint32(0), next, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("turning to the new policies: %w", err)
	}
	wall := time.Now()
	m.generation = next
	m.policies = nil
	for _, one := range policies {
		m.policies = append(m.policies, PolicyStatus{Policy: one, Until: wall.Add(one.For)})
	}
	if err := m.core.Wait(); err != nil {
		return err
	}
	return m.clearSet(1 - next&1)
}

func (m *Marker) fillSet(set uint32, policies []policy.Policy, now uint64) error {
	for i, one := range policies {
		if err := m.maps["policy_rules"].Update(set*policy.Max+uint32(i), ruleOf(one, now), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("policy to %s: %w", one.To, err)
		}
	}
	to := make([]netip.Prefix, len(policies))
	for i, p := range policies {
		to[i] = p.To
	}
	for prefix, names := range policy.Table(to) {
		key := abiPolicyPrefix{Bits: 32 + uint32(prefix.Bits()), Set: set, Addr: prefix.Addr().As16()}
		mask := abiPolicyMask{Named: names.Named, Held: names.Held}
		if err := m.maps["policy_prefixes"].Update(&key, &mask, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("policies to %s: %w", prefix, err)
		}
	}
	for iface, here := range m.ifaces {
		if err := m.putIface(set, iface, maskOf(policies, here.name)); err != nil {
			return err
		}
	}
	return nil
}

// ruleOf is what the kernel checks in addition to the prefix.
func ruleOf(p policy.Policy, now uint64) *abiPolicyRule {
	r := &abiPolicyRule{Until: now + uint64(p.For), PortsLen: uint32(len(p.Ports)), Protos: p.ProtoBits()}
	for i, ports := range p.Ports {
		r.Ports[i] = abiPolicyPorts{From: ports.From, To: ports.To}
	}
	return r
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
	abiPolicyIface
}

// putIface sets what applies on an interface in one set. Interfaces where nothing
// applies have no element.
func (m *Marker) putIface(set uint32, iface flow.Iface, mask uint64) error {
	here := m.ifaces[iface]
	if here.Applies[set] == mask {
		return nil
	}
	now := here.abiPolicyIface
	now.Applies[set] = mask
	var err error
	if now == (abiPolicyIface{}) {
		err = m.dropIface(iface)
	} else {
		err = m.maps["policy_ifaces"].Update(uint32(iface), &now, ebpf.UpdateAny)
	}
	switch {
	case errors.Is(err, unix.E2BIG):
		return fmt.Errorf("policies of %s: %w: packets are marked on at most %d interfaces: name fewer in pdm.policies", here.name, err, pdmIfaces)
	case err != nil:
		return fmt.Errorf("policies of %s: %w", here.name, err)
	}
	here.abiPolicyIface = now
	return nil
}

func (m *Marker) dropIface(iface flow.Iface) error {
	if err := m.maps["policy_ifaces"].Delete(uint32(iface)); err != nil && !isGone(err) {
		return err
	}
	return nil
}

// clearSet forgets what the set held.
func (m *Marker) clearSet(set uint32) error {
	var prefix abiPolicyPrefix
	if err := deleteIf(m.maps["policy_prefixes"], &prefix, func() bool { return prefix.Set == set }); err != nil {
		return fmt.Errorf("forgetting old prefixes: %w", err)
	}
	var errs []error
	for iface := range m.ifaces {
		errs = append(errs, m.putIface(set, iface, 0))
	}
	return errors.Join(errs...)
}

// deleteIf deletes the elements whose key, read into key, makes drop true. No
// one else changes the map meanwhile.
func deleteIf[K any](m *ebpf.Map, key *K, drop func() bool) error {
	var all []K
	for err := m.NextKey(nil, key); ; err = m.NextKey(&all[len(all)-1], key) {
		if isGone(err) {
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
		if err := m.Delete(key); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

// attach makes policies apply on an interface, or again when its name changed.
func (m *Marker) attach(iface flow.Iface, name string) error {
	var policies []policy.Policy
	for _, s := range m.policies {
		policies = append(policies, s.Policy)
	}
	name = path.Base(name) // without its namespace
	if m.ifaces[iface] == nil {
		m.ifaces[iface] = &policyIface{}
	}
	m.ifaces[iface].name = name
	return m.putIface(m.generation&1, iface, maskOf(policies, name))
}

func (m *Marker) detach(iface flow.Iface) error {
	delete(m.ifaces, iface)
	if err := m.dropIface(iface); err != nil {
		return fmt.Errorf("forgetting the policies of interface %d: %w", iface.IfIndex(), err)
	}
	return nil
}

package pdm

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
)

// Policies change on any number of interfaces: both sets fit, and interfaces
// where nothing applies take no element.
func TestPoliciesOfManyInterfaces(t *testing.T) {
	const interfaces, first = 5000, 100
	h := newPDMHost(t, *marking())
	for i := range uint32(interfaces) {
		name := fmt.Sprintf("veth%d", i)
		if i%2 == 1 {
			name = fmt.Sprintf("other%d", i)
		}
		if err := h.pdm.attach(flow.NewIface(1, first+i), name); err != nil {
			t.Fatal(err)
		}
	}
	elements := func() map[uint32]abiPolicyIface {
		found := map[uint32]abiPolicyIface{}
		var iface uint32
		var value abiPolicyIface
		for iter := h.pdm.maps["policy_ifaces"].Iterate(); iter.Next(&iface, &value); {
			found[iface] = value
		}
		return found
	}
	on := func(pattern string) []policy.Policy {
		return []policy.Policy{{To: netip.MustParsePrefix("::/0"), For: time.Hour, Interface: pattern}}
	}
	for _, c := range []struct {
		pattern string
		want    int
	}{{"*", interfaces + 1}, {"veth*", interfaces / 2}, {"*", interfaces + 1}, {"none", 0}, {"other*", interfaces / 2}} {
		if err := h.pdm.SetPolicies(on(c.pattern)); err != nil {
			t.Fatal(err)
		}
		set, got := h.pdm.generation&1, elements()
		if len(got) != c.want {
			t.Errorf("policy on %s: %d elements, want %d", c.pattern, len(got), c.want)
		}
		for iface, value := range got {
			if value.Applies[set] != 1 || value.Applies[1-set] != 0 {
				t.Fatalf("policy on %s: interface %d has %x in set %d", c.pattern, iface, value.Applies, set)
			}
		}
	}
	for i := range uint32(interfaces) {
		if err := h.pdm.detach(flow.NewIface(1, first+i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(elements()); n != 0 {
		t.Errorf("%d elements left of interfaces that are detached", n)
	}
}

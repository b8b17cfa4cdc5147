package topology_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
)

// Default routes of both families and of several next hops count, those of other
// tables and unreachable ones do not.
func TestDefaultRouteInterfaces(t *testing.T) {
	l, err := lab.Up(lab.Config{Topology: "chain", Prefix: netnsPrefix + "r-"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	h := l.Host("porthos") // between athos and aramis
	for _, step := range []struct {
		commands []string
		want     []string
	}{
		{nil, nil},
		{[]string{"ip route add default via 10.0.2.1 table 100", "ip -6 route add unreachable default metric 4000"}, nil},
		{[]string{"ip -6 route add default via 2001:db8:3::2"}, []string{"to-aramis"}},
		{[]string{"ip route add default via 10.0.2.1", "ip route add default via 10.0.3.2 metric 9"}, []string{"to-aramis", "to-athos"}},
		{[]string{"ip -6 route del default via 2001:db8:3::2", "ip route flush exact default"}, nil},
		{[]string{"ip route add default nexthop via 10.0.2.1 nexthop via 10.0.3.2"}, []string{"to-aramis", "to-athos"}},
	} {
		var got []string
		err := h.Do(func() (err error) {
			for _, c := range step.commands {
				if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", c, err, out)
				}
			}
			got, err = topology.DefaultRouteInterfaces()
			return err
		})
		if err != nil || !slices.Equal(got, step.want) {
			t.Errorf("after %s: %v, %v; want %v", strings.Join(step.commands, "; "), got, err, step.want)
		}
	}
}

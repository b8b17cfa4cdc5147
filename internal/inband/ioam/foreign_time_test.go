package ioam

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// TCP of a sender on the same machine gives its packets a delivery time, which they still have where a router forwards them. It
// is no receive time of the router: a trace to which the router adds nothing is not completed as if it had.
func TestForeignDeliveryTime(t *testing.T) {
	l := labtest.New(t, lab.Config{Topology: "chain", MTU: 1500})
	header, err := wire.AppendHeader(nil, 0, traced(pathFields, false, 5, at(wire.POSIX, 1, 65535, 65535, time.Now(), 0)))
	if err != nil {
		t.Fatal(err)
	}
	n := node()
	n.Interfaces = []Interface{{Name: "to-alpha", ID: fromID, Role: RoleEgress}, {Name: "to-porthos", ID: toID, Role: RoleBoth}}
	r := attachNode(t, l.Host("athos"), Config{Time: wire.POSIX, Transit: TransitTC}, n)
	transfer(t, l.Host("alpha"), l.Host("beta"), header, 1<<20)
	if s := stats(t, r); s.Completed > 0 || s.Written > 0 {
		t.Errorf("without a role where packets arrive: %+v", s)
	}
	n.Interfaces[0].Role = RoleBoth
	if err := r.Apply(n); err != nil {
		t.Fatal(err)
	}
	transfer(t, l.Host("alpha"), l.Host("beta"), header, 1<<20)
	if s := stats(t, r); s.Completed == 0 || s.Completed != s.Written {
		t.Errorf("with a role there: %+v", s)
	}
}

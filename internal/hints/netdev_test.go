package hints

import (
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/lab/labtest"
)

// TestExamine: veth's driver offers all hints and has no clock; ifb's runs no XDP program and offers none.
func TestExamine(t *testing.T) {
	h := labtest.NewHost(t)
	err := h.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "here"}, PeerName: "there"}); err != nil {
			return err
		}
		if err := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "plain"}}); err != nil {
			return err
		}
		devices, err := ExamineAll()
		if err != nil {
			return err
		}
		found := 0
		for _, d := range devices {
			if !slices.Contains([]string{"here", "plain", "there"}, d.Name) {
				continue // of modules that make interfaces in each namespace
			}
			found++
			reported := kernel.XDPHints.Has()
			veth := d.Driver == "veth"
			if d.Reported != reported || d.Native != (veth && reported) || d.Hardware || d.Clock != "" || d.Program != nil {
				t.Errorf("%s: %+v", d.Name, d)
			}
			for _, hint := range d.Hints {
				source := "computed"
				if veth && reported {
					source = "driver"
				}
				if hint.Offered != (source == "driver") || hint.Source != source || hint.Rate != nil {
					t.Errorf("%s: %+v, want it from: %s", d.Name, hint, source)
				}
			}
		}
		if found != 3 {
			t.Errorf("%d interfaces of 3", found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestExamineVanished(t *testing.T) {
	_, err := Examine("nosuchiface0")
	var missing netlink.LinkNotFoundError
	if !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
	if kernel.XDPHints.Has() {
		if _, err := queryNetdev(1<<31 - 1); !errors.Is(err, syscall.ENODEV) {
			t.Errorf("asking for an interface that does not exist: %v", err)
		}
	}
}

// TestParseNetdev: kernels before 6.7 do not report hints, which is not the same as none.
func TestParseNetdev(t *testing.T) {
	attr := func(kind uint16, value uint64) syscall.NetlinkRouteAttr {
		return syscall.NetlinkRouteAttr{Attr: syscall.RtAttr{Type: kind}, Value: binary.NativeEndian.AppendUint64(nil, value)}
	}
	short := syscall.NetlinkRouteAttr{Attr: syscall.RtAttr{Type: netdevRxMetadata}, Value: []byte{7, 0, 0, 0}}
	for _, c := range []struct {
		name  string
		attrs []syscall.NetlinkRouteAttr
		want  netdev
		err   error
	}{
		{"all", []syscall.NetlinkRouteAttr{attr(netdevXDP, 0x7f), attr(netdevRxMetadata, 7)}, netdev{Native: true, Sends: Sends{Frames: true, Parts: true}, Hints: 7}, nil},
		{"none", []syscall.NetlinkRouteAttr{attr(netdevXDP, 1), attr(netdevRxMetadata, 0)}, netdev{Native: true, Hints: 0}, nil},
		{"no XDP", []syscall.NetlinkRouteAttr{attr(netdevXDP, 0), attr(netdevRxMetadata, 0)}, netdev{}, nil},
		{"Linux 6.3", []syscall.NetlinkRouteAttr{attr(netdevXDP, 1)}, netdev{Native: true}, ErrNotReported},
		{"cut", []syscall.NetlinkRouteAttr{short}, netdev{}, ErrNotReported},
		{"unknown kinds", []syscall.NetlinkRouteAttr{attr(netdevRxMetadata, 0xf9)}, netdev{Hints: 0xf9}, nil},
	} {
		got, err := parseNetdev(c.attrs)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v, want %+v, %v", c.name, got, err, c.want, c.err)
		}
		if got.Hints.Has(VLAN) != (got.Hints&4 != 0) || got.Hints.Has(Time) != (got.Hints&1 != 0) {
			t.Errorf("%s: %v", c.name, got.Hints)
		}
	}
}
